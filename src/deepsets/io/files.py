"""Table files as Arrow: a whole table, or record batches one after another, validated before anybody uses them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .npz import read_npz
from .storage import TableError, arrow, format_of, is_remote, reading, resolve

_BLOCK = 1 << 24  # bytes of text at a time: a line of JSON, with all members of a set, must fit
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_DEEPEST = 32  # levels of brackets in a line of JSON; the parser is recursive


class File:
    r"""Table in a file.

    Parameters
    ----------
    path : str or Path
        Path or URI; Parquet, CSV, Arrow/Feather, JSON lines or NPZ, by extension.
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
        pa = arrow()
        self.path, self.kind = path, format_of(path)
        self._system, self._inside = resolve(path)
        info = self._system.get_file_info(self._inside)
        if not info.is_file:
            raise TableError(f"{path} {'does not exist' if info.type.name == 'NotFound' else 'is not a file'}.")
        self._identifiers = set(identifiers) if self.kind == "csv" else set()
        self._text = self._identifiers | set(text)
        self._as_integers: dict[str, bool] = {}
        with reading(path):
            if self.kind == "npz":
                with self._system.open_input_file(self._inside) as file:
                    self._source = pa.dataset.dataset(read_npz(file, pa))
            else:
                if self.kind == "json":
                    self._check_depth()
                self._source = self._dataset({})
            if self.kind == "csv" and (types := self._fixed_types(numbers)):
                self._source = self._dataset(types)
            found = self._source.schema
            twice = [name for name in found.names if found.names.count(name) > 1] if len(found) < 10_000 else []
            if twice:
                raise TableError(f"{path} has several columns {twice[0]!r}: names must be unique.")
            fields = [field.with_type(plain_type(field.type)) for field in found]
            self.schema = pa.schema(fields, metadata=found.metadata)

    def _dataset(self, types: dict[str, Any]) -> Any:
        pa, kind = arrow(), self.kind
        if kind == "csv":
            convert = pa.csv.ConvertOptions(column_types=types, strings_can_be_null=True)
            kind = pa.dataset.CsvFileFormat(convert_options=convert, read_options=pa.csv.ReadOptions(block_size=_BLOCK))
        elif kind == "json":
            kind = pa.dataset.JsonFileFormat(read_options=pa.json.ReadOptions(block_size=_BLOCK))
        return pa.dataset.dataset(self._inside, filesystem=self._system, format=kind)

    def _fixed_types(self, numbers: Sequence[str]) -> dict[str, Any]:
        """Types of CSV columns that must not depend on their first rows."""
        pa, schema = arrow(), self._source.schema
        types = {name: pa.string() for name in self._text if name in schema.names}
        for name in numbers:
            if name in schema.names and name not in types:
                kind = schema.field(name).type
                if pa.types.is_integer(kind) or pa.types.is_null(kind):
                    types[name] = pa.float64()
        return types

    @property
    def rows(self) -> int | None:
        """Number of rows, or None where the file would have to be read for it."""
        with reading(self.path):
            return self._source.count_rows() if self.kind in ("parquet", "ipc", "npz") else None

    def head(self, columns: list[str], rows: int = 100) -> Any:
        """Return the first rows of some columns as an Arrow table."""
        for batch in self.batches(columns, rows):
            if len(batch):
                return arrow().Table.from_batches([batch.slice(0, rows)])
        return arrow().schema([self.schema.field(name) for name in columns]).empty_table()

    def read(self, columns: list[str]) -> Any:
        """Return all rows of some columns as an Arrow table."""
        pa = arrow()
        with reading(self.path):
            if self.kind == "csv":  # here types follow from all rows, not only from the first block
                text = {name: pa.string() for name in self._text & set(columns)}
                convert = pa.csv.ConvertOptions(include_columns=columns, strings_can_be_null=True, column_types=text)
                with self._system.open_input_stream(self._inside) as file:
                    return self._integers(pa.csv.read_csv(file, convert_options=convert), whole=True)
            return self._checked(self._source.to_table(columns=columns))

    def batches(self, columns: list[str], rows: int, groups: tuple[int, int] | None = None) -> Iterator[Any]:
        """Iterate over record batches of a file, or of its row groups from one to before another, in their order."""
        with reading(self.path):
            if self.kind == "parquet":
                chosen = range(*groups) if groups else None
                for batch in self._parquet.iter_batches(rows, row_groups=chosen, columns=columns, use_threads=False):
                    yield self._checked(batch)
                return
            scan = self._source.to_batches(columns=columns, batch_size=rows, batch_readahead=1, fragment_readahead=1)
            for batch in scan:
                yield self._integers(self._checked(batch))

    @cached_property
    def _parquet(self) -> Any:
        # A dataset decodes whole row groups, which may be as large as the file: 290 MB against 135 MB here for a group
        # of 290 MB. This reads pages as they are needed.
        options = {"pre_buffer": is_remote(self.path), "buffer_size": 1 << 20, "filesystem": self._system}
        return arrow().parquet.ParquetFile(self._inside, **options)

    def _checked(self, table: Any) -> Any:
        """Validate every offset, index and string of a table or batch, and decode types that are encodings."""
        table.validate(full=True)
        for place, field in enumerate(table.schema):
            kind, column = plain_type(field.type), table.column(place)
            if kind != field.type:
                if arrow().types.is_run_end_encoded(field.type):
                    column = arrow().compute.run_end_decode(column)
                table = table.set_column(place, field.name, column.cast(kind))
        return table

    def _integers(self, table: Any, *, whole: bool = False) -> Any:
        """Identifiers of CSV files, read as text, as integers if they are such; decided by the first batch."""
        for name in self._identifiers & set(table.schema.names):
            column = table[name]
            if not whole and self._as_integers.get(name) is False:
                continue
            found = _to_integers(column)
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

    def _check_depth(self) -> None:
        """Refuse JSON nested so deeply that Arrow's recursive parser would overflow its stack and end the process."""
        level = least = most = 0
        with self._system.open_input_stream(self._inside) as file:
            while data := file.read(_BLOCK):
                levels = level + _levels(data)
                level, least, most = int(levels[-1]), min(least, int(levels.min())), max(most, int(levels.max()))
        if most - least <= _DEEPEST:
            return
        with self._system.open_input_file(self._inside) as file:  # brackets in strings are not nesting
            for number, line in enumerate(io.BufferedReader(file), 1):
                if int(_levels(_STRING.sub(b"", line)).max()) > _DEEPEST:
                    raise TableError(
                        f"{self.path}, line {number} nests more than {_DEEPEST} levels of brackets: a set is a list of "
                        "numbers, or of lists of numbers."
                    )


def _levels(text: bytes) -> np.ndarray:
    """The depth of nesting after each byte."""
    codes = np.frombuffer(text + b" ", dtype=np.uint8) | 32  # [ and { differ in this bit only, as do ] and }
    return np.cumsum((codes == ord("{")).astype(np.int32) - (codes == ord("}")).astype(np.int32), dtype=np.int64)


def _to_integers(column: Any) -> Any:
    """Text such as "17" as integers; None where a text is not the plain form of one: "017", "1e3", larger ones."""
    pa = arrow()
    if not pa.types.is_string(column.type):
        return None
    try:
        found = column.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    return None if pa.compute.all(pa.compute.equal(found.cast(pa.string()), column)).as_py() is False else found


def plain_type(kind: Any) -> Any:
    """The type of a column after decoding: encodings of values are not visible to the rest of the package."""
    pa = arrow()
    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if types.is_string_view(kind):
        return pa.string()
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if is_list(kind) and (inner := plain_type(kind.value_type)) != kind.value_type:
        return pa.large_list(inner) if types.is_large_list(kind) else pa.list_(inner)
    return kind


def is_list(kind: Any) -> bool:
    """Return whether an Arrow type is a list of variable length."""
    types = arrow().types
    return types.is_list(kind) or types.is_large_list(kind)


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is text."""
    types = arrow().types
    return types.is_string(kind) or types.is_large_string(kind)


def is_number(kind: Any) -> bool:
    """Return whether an Arrow type holds numbers, booleans, or nothing but nulls."""
    types = arrow().types
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def is_single(kind: Any) -> bool:
    """Return whether an Arrow type holds single values that sets can hold: numbers, text, dates and times."""
    types = arrow().types
    times = types.is_date(kind) or types.is_timestamp(kind) or types.is_time(kind) or types.is_duration(kind)
    return is_number(kind) or is_text(kind) or times


def numbers(column: Any, name: str) -> np.ndarray:
    """Convert an Arrow column to float64, with NaN for null."""
    if not is_number(column.type):
        shown = next((str(v) for v in column.slice(0, 100).to_pylist() if v is not None), "")
        raise TableError(
            f"column {name!r} must hold numbers, but it holds {column.type} such as {shown!r}: leave it out of the "
            "features. A text column that is the only feature is learned as tokens."
        )
    return column.cast(arrow().float64(), safe=False).to_numpy(zero_copy_only=False)
