"""Files to Arrow: a whole table, or record batches one after another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

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


def arrow() -> Any:
    """The pyarrow package, with the parts that are used here."""
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.dataset
        import pyarrow.json
        import pyarrow.parquet
    except ImportError:
        raise ImportError("reading and writing tables needs pyarrow: pip install 'deepsets[data]'.") from None
    return pyarrow


def format_of(path: Path) -> str:
    """The format that a suffix names."""
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path} is no table of a known kind: its suffix must be one of {', '.join(FORMATS)}.")
    return FORMATS[path.suffix.lower()]


class File:
    r"""A table in a file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "few.csv"
    ...     _ = path.write_text("box,x\na,1.5\na,2.5\nb,\n")
    ...     table = File(path)
    ...     table.schema.names, table.read(["x"])["x"].to_pylist()
    (['box', 'x'], [1.5, 2.5, None])

    numbers: columns of text files that are read as floats whatever their first rows look like.
    """

    def __init__(self, path: str | Path, numbers: list[str] | None = None) -> None:
        self.path, self.kind = Path(path), format_of(Path(path))
        if not self.path.is_file():
            raise ValueError(f"{self.path} {'is not a file' if self.path.exists() else 'does not exist'}.")
        pa = arrow()
        with self._telling():
            if self.kind == "npz":
                self._source = pa.dataset.dataset(_from_npz(self.path, pa))
            else:
                self._source = pa.dataset.dataset(self.path, format=self._format(pa, numbers or []))
        self.schema = self._source.schema

    def _format(self, pa: Any, numbers: list[str]) -> Any:
        if self.kind == "csv":
            convert = pa.csv.ConvertOptions(
                column_types={name: pa.float64() for name in numbers}, strings_can_be_null=True
            )
            return pa.dataset.CsvFileFormat(convert_options=convert, read_options=pa.csv.ReadOptions(block_size=_BLOCK))
        if self.kind == "json":
            return pa.dataset.JsonFileFormat(read_options=pa.json.ReadOptions(block_size=_BLOCK))
        return self.kind

    @property
    def rows(self) -> int | None:
        """How many rows there are, where the file says so without being read."""
        return self._source.count_rows() if self.kind in ("parquet", "ipc", "npz") else None

    def head(self, columns: list[str], rows: int = 100) -> Any:
        """The first rows, as an Arrow table."""
        with self._telling():
            return self._source.head(rows, columns=columns)

    def read(self, columns: list[str]) -> Any:
        """All rows of these columns, as an Arrow table."""
        pa = arrow()
        with self._telling():
            if self.kind == "csv":  # of all rows the types are known, not only of the first block
                convert = pa.csv.ConvertOptions(include_columns=columns, strings_can_be_null=True)
                return pa.csv.read_csv(self.path, convert_options=convert)
            return self._source.to_table(columns=columns)

    def batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        """Record batches of at most `rows` rows, in order."""
        with self._telling():
            if self.kind == "parquet":
                # A dataset decodes whole row groups, which may be as large as the file: 290 MB against 135 MB here for
                # a group of 290 MB. This reads pages as they are needed.
                with arrow().parquet.ParquetFile(self.path, pre_buffer=False, buffer_size=1 << 20) as file:
                    yield from file.iter_batches(rows, columns=columns)
                return
            yield from self._source.to_batches(
                columns=columns, batch_size=rows, batch_readahead=1, fragment_readahead=1
            )

    def _telling(self) -> Any:
        return _Telling(self.path)


class _Telling:
    """Arrow's errors, with the name of the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        pa = arrow()
        if isinstance(error, pa.ArrowException | OSError):
            first = str(error).strip().splitlines()[0]
            if isinstance(error, pa.ArrowInvalid) and "empty" in first.lower():
                first = "it is empty"
            raise ValueError(f"{self.path} cannot be read: {first.rstrip('.')}.") from None


def _from_npz(path: Path, pa: Any) -> Any:
    """Arrays of one length as columns. With an array `offsets` (B + 1,), arrays of N members become list columns.

    Arrays (N, D) become columns of fixed-size lists; of 3-D arrays the last axes are flattened.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path} cannot be read as NPZ with plain arrays: {error}.") from None
    offsets = arrays.pop("offsets", None)
    columns = {name: _column(array, pa) for name, array in arrays.items() if array.ndim}
    if offsets is not None:
        if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) == 0:
            raise ValueError(f"{path}: offsets must be B + 1 integers, found {offsets.dtype} of shape {offsets.shape}.")
        sets, members = len(offsets) - 1, int(offsets[-1])
        for name, column in columns.items():
            if len(column) == members and (len(column) != sets or pa.types.is_fixed_size_list(column.type)):
                columns[name] = pa.LargeListArray.from_arrays(pa.array(offsets.astype(np.int64)), column)
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(
            f"{path}: the arrays of a table need one length, found {found}. Sets one after another need `offsets`."
        )
    return pa.table(columns)


def _column(array: np.ndarray, pa: Any) -> Any:
    if array.ndim == 1:
        return pa.array(array)
    width = int(np.prod(array.shape[1:]))
    return pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), width)
