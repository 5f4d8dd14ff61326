"""Tables and sets larger than memory: encoded, merged and decoded on this machine, on Ray or on Spark."""

from .candidates import expand
from .functions import decode, encode, merge, remove
from .jobs import Engine, pool, predict
from .shards import Shards

__all__ = ["Engine", "Shards", "decode", "encode", "expand", "merge", "pool", "predict", "remove"]
