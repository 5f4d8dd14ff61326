"""Sets and tables larger than memory: pooled in parts, on this machine or on a Ray cluster."""

from ._answers import answers as answers
from ._answers import flat as flat
from ._answers import naming as naming
from ._answers import output_names as output_names
from ._candidates import expand as expand
from ._engines import Engine as Engine
from ._pool import pool as pool
from ._predict import predict as predict
from ._shards import Shards as Shards
from ._source import Source as Source
from ._source import check_values as check_values
from ._states import is_states as is_states
from ._train import train as train
