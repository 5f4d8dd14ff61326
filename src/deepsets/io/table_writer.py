"""Tables written piece by piece; a file appears when it is complete."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..files import atomic_path, locked
from .arrow_types import TableError, arrow
from .files import format_of


def check_output(path: Path, overwrite: bool, inputs: tuple[Path, ...] = ()) -> None:
    """Raise an error, before any work, for a path that cannot or must not be written.

    Parameters
    ----------
    path : Path
        The table to write.
    overwrite : bool
        Whether an existing file may be replaced.
    inputs : tuple of Path, default=()
        Files that are read to make it; they are never replaced.
    """
    format_of(path)
    for source in inputs:
        if path.exists() and source.exists() and path.samefile(source):
            raise TableError(f"{path} is the input: choose another path for the output.")
    if path.is_dir() or (path.exists() and not overwrite):
        raise TableError(f"{path} exists: choose another path" + (", or --overwrite." * (not path.is_dir()) or "."))
    check_folder(path)


def check_folder(path: Path) -> None:
    """Raise an error if nothing can be written beside a path.

    Parameters
    ----------
    path : Path
        A file or folder that will be written.
    """
    folder = path.absolute().parent
    if not folder.is_dir():
        raise TableError(f"the folder {folder} does not exist.")
    probe = folder / f".{path.name}.probe"
    try:
        probe.write_bytes(bytes(1 << 20))
    except OSError as error:
        raise TableError(f"nothing can be written to the folder {folder}: {error.strerror or error}.") from None
    finally:
        probe.unlink(missing_ok=True)


@contextmanager
def writer(path: Path) -> Iterator[Callable[[Any], None]]:
    """Write Arrow tables of one schema, one after another, in the format of the extension.

    The file is written under a temporary name and renamed at the end; after an error it is removed.

    Parameters
    ----------
    path : Path
        The file to write.

    Yields
    ------
    callable
        Function that appends an Arrow table.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "out.csv"
    ...     with writer(path) as write:
    ...         write(arrow().table({"n": [1, 2]}))
    ...         write(arrow().table({"n": [3]}))
    ...     path.read_text().split()
    ['"n"', '1', '2', '3']
    """
    with locked(path), atomic_path(path) as temporary, ExitStack() as stack:
        yield _Writer(temporary, format_of(path), stack).write


class _Writer:
    def __init__(self, path: Path, kind: str, stack: ExitStack) -> None:
        self.path, self.kind, self.stack = path, kind, stack
        self.sink: Any = None
        self.kept: list[Any] = []
        stack.callback(self._close)

    def write(self, table: Any) -> None:
        pa = arrow()
        if self.kind == "npz":  # an archive of whole arrays
            self.kept.append(table)
            return
        if self.sink is None:
            if self.kind == "json":
                self.sink = self.stack.enter_context(self.path.open("w", encoding="utf-8"))
            else:
                make = {"parquet": pa.parquet.ParquetWriter, "csv": pa.csv.CSVWriter, "ipc": pa.ipc.new_file}
                self.sink = self.stack.enter_context(make[self.kind](self.path, table.schema))
        if self.kind == "json":
            self.sink.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in table.to_pylist())
        else:
            self.sink.write_table(table)

    def _close(self) -> None:
        if self.kind == "npz" and self.kept:
            table = arrow().concat_tables(self.kept)
            with self.path.open("wb") as file:
                arrays = {name: _array(table[name]) for name in table.column_names}
                np.savez(file, allow_pickle=False, **arrays)


def _array(column: Any) -> np.ndarray:
    """Text as NumPy's own: an archive with objects would need pickle."""
    array = column.to_numpy()
    return np.array(array.tolist(), dtype=str) if array.dtype == object else array
