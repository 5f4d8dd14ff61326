"""Answers to files, piece by piece; the file appears when it is complete."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .files import arrow, format_of


def check_output(path: Path, overwrite: bool) -> None:
    """Refuses, before any work, a path that exists, has an unknown suffix or stands in no folder."""
    format_of(path)
    if path.is_dir() or (path.exists() and not overwrite):
        raise ValueError(f"{path} exists: choose another path" + (", or --overwrite." * (not path.is_dir()) or "."))
    if not path.parent.is_dir():
        raise ValueError(f"the folder {path.parent} does not exist.")


@contextmanager
def writer(path: Path) -> Iterator[Callable[[Any], None]]:
    """A function that writes Arrow tables of one schema, one after another, in the format of the suffix.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "out.csv"
    ...     with writer(path) as write:
    ...         write(arrow().table({"n": [1, 2]}))
    ...         write(arrow().table({"n": [3]}))
    ...     path.read_text().split()
    ['"n"', '1', '2', '3']

    What is written goes to a temporary name beside `path` and is renamed at the end; after an error it is removed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with ExitStack() as stack:
            yield _Writer(temporary, format_of(path), stack).write
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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
    """Strings as numpy's own: an archive with objects would need pickle."""
    array = column.to_numpy()
    return np.array(array.tolist(), dtype=str) if array.dtype == object else array
