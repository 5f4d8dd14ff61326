"""Sets and tables larger than memory: pooled in parts, on this machine or on a Ray cluster."""

from .candidates import expand as expand
from .engines import Engine as Engine
from .pool import pool as pool
from .predict import predict as predict
from .shards import Shards as Shards
from .states import is_states as is_states
