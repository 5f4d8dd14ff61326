"""Table files as Arrow: a whole table, or record batches one after another, validated before anybody uses them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .arrow_types import TableError, arrow, decode, plain_type, to_integers
from .npz import read_npz

__all__ = ["File", "TableError", "arrow", "format_of"]

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
    ".jsonl": "json",
    ".ndjson": "json",
    ".npz": "npz",
}
_BLOCK = 1 << 24  # bytes of text at a time: a line of JSON, with all members of a set, must fit
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_DEEPEST = 32  # levels of brackets in a line of JSON; the parser is recursive


def format_of(path: str | Path) -> str:
    """Return the format of a table file, by its extension.

    Parameters
    ----------
    path : str or Path
        A file name.

    Returns
    -------
    str
        One of ``"parquet"``, ``"csv"``, ``"ipc"``, ``"json"``, ``"npz"``.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise TableError(f"{path} has an unsupported file extension: use one of {', '.join(FORMATS)}.")
    return FORMATS[path.suffix.lower()]


class File:
    r"""Table in a file.

    Parameters
    ----------
    path : str or Path
        Parquet, CSV, Arrow/Feather, JSON lines or NPZ, by extension.
    numbers : sequence of str, default=()
        Columns of CSV files to be read as floats even if the first rows hold only integers.
    identifiers : sequence of str, default=()
        Columns that name something. They are read from CSV files as integers, if all of them are plain 64-bit
        integers, and otherwise as text, never as floats: 9223372036854775808 and 9223372036854775809 stay distinct.
    text : sequence of str, default=()
        Columns of CSV files to be read as text even if they look like something else.

    Attributes
    ----------
    schema : pyarrow.Schema
        Names and types of the columns.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "few.csv"
    ...     _ = path.write_text("box,x\na,1.5\na,2.5\nb,\n")
    ...     table = File(path)
    ...     table.schema.names, table.read(["x"])["x"].to_pylist()
    (['box', 'x'], [1.5, 2.5, None])
    """

    def __init__(
        self, path: str | Path, numbers: Sequence[str] = (), identifiers: Sequence[str] = (), text: Sequence[str] = ()
    ) -> None:
        self.path, self.kind = Path(path), format_of(path)
        if not self.path.is_file():
            raise TableError(f"{self.path} {'is not a file' if self.path.exists() else 'does not exist'}.")
        pa = arrow()
        self._identifiers = set(identifiers) if self.kind == "csv" else set()
        self._as_integers: dict[str, bool] = {}
        self._text = set(text)
        with self._errors():
            if self.kind == "npz":
                self._source = pa.dataset.dataset(read_npz(self.path, pa))
            else:
                if self.kind == "json":
                    _check_depth(self.path)
                self._source = pa.dataset.dataset(self.path, format=self._format({}))
            types = self._text_types(numbers)
            if types:
                self._source = pa.dataset.dataset(self.path, format=self._format(types))
            found = self._source.schema
            twice = [name for name in found.names if found.names.count(name) > 1] if len(found) < 10_000 else []
            if twice:
                raise TableError(f"{self.path} has several columns {twice[0]!r}: names must be unique.")
            fields = [field.with_type(plain_type(field.type)) for field in found]
            self.schema = pa.schema(fields, metadata=found.metadata)

    def _text_types(self, numbers: Sequence[str]) -> dict[str, Any]:
        """Types of CSV columns that must not depend on their first rows."""
        if self.kind != "csv":
            return {}
        pa, schema = arrow(), self._source.schema
        types = {name: pa.string() for name in self._identifiers | self._text if name in schema.names}
        for name in numbers:
            if name in schema.names and name not in types:
                kind = schema.field(name).type
                if pa.types.is_integer(kind) or pa.types.is_null(kind):
                    types[name] = pa.float64()
        return types

    def _format(self, types: dict[str, Any]) -> Any:
        pa = arrow()
        if self.kind == "csv":
            convert = pa.csv.ConvertOptions(column_types=types, strings_can_be_null=True)
            return pa.dataset.CsvFileFormat(convert_options=convert, read_options=pa.csv.ReadOptions(block_size=_BLOCK))
        if self.kind == "json":
            return pa.dataset.JsonFileFormat(read_options=pa.json.ReadOptions(block_size=_BLOCK))
        return self.kind

    @property
    def rows(self) -> int | None:
        """Number of rows, or None where the file would have to be read for it."""
        with self._errors():
            return self._source.count_rows() if self.kind in ("parquet", "ipc", "npz") else None

    def head(self, columns: list[str], rows: int = 100) -> Any:
        """Return the first rows as an Arrow table.

        Parameters
        ----------
        columns : list of str
            Columns to read.
        rows : int, default=100
            How many rows at most.
        """
        with self._errors():
            return self._checked(self._source.head(rows, columns=columns))

    def read(self, columns: list[str]) -> Any:
        """Return all rows of some columns as an Arrow table.

        Parameters
        ----------
        columns : list of str
            Columns to read.
        """
        pa = arrow()
        with self._errors():
            if self.kind == "csv":  # here types follow from all rows, not only from the first block
                text = {name: pa.string() for name in (self._identifiers | self._text) & set(columns)}
                convert = pa.csv.ConvertOptions(include_columns=columns, strings_can_be_null=True, column_types=text)
                return self._integers(pa.csv.read_csv(self.path, convert_options=convert), whole=True)
            return self._checked(self._source.to_table(columns=columns))

    def batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        """Iterate over record batches in the order of the file.

        Parameters
        ----------
        columns : list of str
            Columns to read.
        rows : int
            Largest number of rows of a batch.
        """
        with self._errors():
            if self.kind == "parquet":
                # A dataset decodes whole row groups, which may be as large as the file: 290 MB against 135 MB here for
                # a group of 290 MB. This reads pages as they are needed.
                with arrow().parquet.ParquetFile(self.path, pre_buffer=False, buffer_size=1 << 20) as file:
                    for batch in file.iter_batches(rows, columns=columns):
                        yield self._checked(batch)
                return
            scan = self._source.to_batches(columns=columns, batch_size=rows, batch_readahead=1, fragment_readahead=1)
            for batch in scan:
                yield self._integers(self._checked(batch))

    def _checked(self, table: Any) -> Any:
        """Validate every offset, index and string of a table or batch, and decode types that are encodings."""
        table.validate(full=True)
        for place, field in enumerate(table.schema):
            kind = plain_type(field.type)
            if kind != field.type:
                table = table.set_column(place, field.name, decode(table.column(place), kind))
        return table

    def _integers(self, table: Any, *, whole: bool = False) -> Any:
        """Identifiers of CSV files, read as text, as integers if they are such; decided by the first batch."""
        for name in self._identifiers & set(table.schema.names):
            column = table[name]
            if not whole and self._as_integers.get(name) is False:
                continue
            found = to_integers(column)
            if not whole and found is None and self._as_integers.get(name):
                raise TableError(
                    f"{self.path}: column {name!r} begins with integers, but has other text later: identifiers of one "
                    "kind are needed to read a file in pieces. Store the table as Parquet with this column as text."
                )
            if not whole and column.null_count < len(column):
                self._as_integers[name] = found is not None
            if found is not None:
                table = table.set_column(table.schema.names.index(name), name, found)
        return table

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn every error of a reader into a sentence with the name of the file."""
        try:
            yield
        except (TableError, ImportError):
            raise
        except MemoryError:
            raise TableError(f"{self.path} cannot be read: it needs more memory than this machine has.") from None
        except Exception as error:
            first = next(iter(str(error).strip().splitlines()), type(error).__name__)
            if "empty" in first.lower() and self.kind in ("csv", "json"):
                first = "it is empty"
            raise TableError(f"{self.path} cannot be read: {first.rstrip('.')}.") from None


def _check_depth(path: Path) -> None:
    """Refuse JSON nested so deeply that Arrow's recursive parser would overflow its stack and end the process."""
    level = least = most = 0
    with path.open("rb") as file:
        while data := file.read(_BLOCK):
            levels = level + _levels(data)
            level, least, most = int(levels[-1]), min(least, int(levels.min())), max(most, int(levels.max()))
    if most - least <= _DEEPEST:
        return
    with path.open("rb") as file:  # once more, without brackets in strings, which are not nesting
        for number, line in enumerate(file, 1):
            if int(_levels(_STRING.sub(b"", line)).max()) > _DEEPEST:
                raise TableError(
                    f"{path}, line {number} nests more than {_DEEPEST} levels of brackets: a set is a list of "
                    "numbers, or of lists of numbers."
                )


def _levels(text: bytes) -> np.ndarray:
    """The depth of nesting after each byte."""
    codes = np.frombuffer(text + b" ", dtype=np.uint8) | 32  # [ and { differ in this bit only, as do ] and }
    return np.cumsum((codes == ord("{")).astype(np.int32) - (codes == ord("}")).astype(np.int32), dtype=np.int64)
