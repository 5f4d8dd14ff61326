"""Tables of sets in files: Parquet, CSV, Arrow/Feather, NPZ and JSON lines, long or nested, whole or as a stream."""

from ._columns import Columns as Columns
from ._columns import Shape as Shape
from ._columns import shape_of as shape_of
from ._files import File as File
from ._sets import TableSets as TableSets
from ._sets import numbers as numbers
from ._sets import same_within_sets as same_within_sets
from ._sets import to_sets as to_sets
from ._stream import read as read
from ._stream import stream as stream
from ._write import check_output as check_output
from ._write import writer as writer
