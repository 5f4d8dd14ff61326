"""Outputs: tables written piece by piece, and folders of Parquet files; they appear when they are complete."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..files import atomic_folder, atomic_path, locked
from .storage import (
    TableError,
    arrow,
    copy_file,
    delete_folder,
    file_stamps,
    format_of,
    is_remote,
    kind_of,
    resolve,
)

MANIFEST = "_deepsets.json"  # readers of folders of Parquet files skip names that begin with an underscore
_SORTED = 128 << 20  # bytes of Parquet files that are sorted in memory
_GROUP = 1 << 16  # rows of a row group


def check_output(path: str | Path, overwrite: bool, inputs: Sequence[str | Path] = ()) -> None:
    """Raise an error, before any work, for an output that cannot or must not be written.

    An existing folder is replaced only if this package has written it; inputs never are.
    """
    folder, kind = not Path(path).suffix, kind_of(path)
    if not folder:
        format_of(path)
    for source in inputs:
        here = Path(path).exists() and Path(source).exists()
        if kind != "NotFound" and (str(source) == str(path) or (here and Path(path).samefile(source))):
            raise TableError(f"{path} is the input: choose another path for the output.")
    foreign = kind == ("File" if folder else "Directory") or (kind == "Directory" and read_manifest(path) is None)
    if kind != "NotFound" and (foreign or not overwrite):
        what = "exists, and was not written by this package" if foreign and folder else "exists"
        raise TableError(f"{path} {what}: choose another path{'.' if foreign else ', or --overwrite.'}")
    if not is_remote(path):
        check_folder(Path(resolve(path)[1]))
        return
    system, inside = resolve(path)
    try:
        with system.open_output_stream(f"{inside}.check") as file:
            file.write(b"")
        system.delete_file(f"{inside}.check")
    except OSError as error:
        raise TableError(f"{path} cannot be written: {str(error).splitlines()[0].rstrip('.')}.") from None


def check_folder(path: Path) -> None:
    """Raise an error if nothing can be written beside a path."""
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
def writer(path: str | Path) -> Iterator[Callable[[Any], None]]:
    """Write Arrow tables of one schema, one after another, in the format of the extension.

    The file is written under a temporary name and renamed at the end; after an error it is removed.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "out.csv"
    ...     with writer(path) as write:
    ...         write(arrow().table({"n": [1, 2]}))
    ...         write(arrow().table({"n": [3]}))
    ...     path.read_text().split()
    ['"n"', '1', '2', '3']
    """
    if is_remote(path):
        with tempfile.TemporaryDirectory(prefix="deepsets-") as folder:
            local = Path(folder) / Path(path).name
            with writer(local) as write:
                yield write
            copy_file(str(local), str(path))
        return
    path = Path(resolve(path)[1])
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
                make = {"parquet": parquet_writer, "csv": pa.csv.CSVWriter, "ipc": pa.ipc.new_file}
                self.sink = self.stack.enter_context(make[self.kind](self.path, table.schema))
        if self.kind == "json":
            self.sink.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in table.to_pylist())
        elif self.kind == "parquet":
            self.sink.write_table(table, _GROUP)
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


def parquet_writer(sink: Any, schema: Any) -> Any:
    """Open a Parquet file for writing, without dictionaries for vectors: these would cost ten times the writing."""
    types = arrow().types
    plain = [field.name for field in schema if not types.is_fixed_size_list(field.type)]
    return arrow().parquet.ParquetWriter(sink, schema, use_dictionary=plain)


@contextmanager
def open_output(uri: str) -> Iterator[Any]:
    """Open a file for writing, which appears when the block ends without an error."""
    system, path = resolve(uri)
    if is_remote(uri):
        with system.open_output_stream(path) as stream:
            yield stream
    else:
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            yield file


def read_manifest(folder: str | Path) -> dict[str, Any] | None:
    """Return the description that :func:`publish` has written into a folder, or None."""
    system, path = resolve(folder)
    try:
        with system.open_input_stream(f"{path}/{MANIFEST}") as file:
            return json.loads(file.read())
    except OSError:
        return None


def publish(
    parts: Sequence[str], output: str, manifest: dict[str, Any], sort: str | None = None, schema: Any = None
) -> None:
    """Combine Parquet files to an output, which appears when it is complete.

    A folder gets the files as they are, and `manifest` as its description. A file gets their rows, cast to `schema`
    if it is given, and sorted by `sort` if they are few enough to be sorted in memory.
    """
    text = json.dumps(manifest, indent=1).encode()
    names = [f"part-{number:06d}.parquet" for number in range(len(parts))]
    if Path(output).suffix:
        tables = _tables(parts)
        if schema is not None:
            tables = (table.cast(schema) for table in tables)
        if sort and sum(size for _, size, _ in file_stamps(parts)) < _SORTED:
            tables = iter([arrow().concat_tables(tables).sort_by(sort)])
        with writer(output) as write:
            for table in tables:
                write(table)
    elif is_remote(output):
        delete_folder(output)  # of an earlier run
        for part, name in zip(parts, names, strict=True):
            copy_file(part, f"{output}/{name}")
        system, path = resolve(output)
        with system.open_output_stream(f"{path}/{MANIFEST}") as stream:  # last: it says that the output is complete
            stream.write(text)
    else:
        with atomic_folder(resolve(output)[1]) as new:
            for part, name in zip(parts, names, strict=True):
                copy_file(part, str(new / name))
            (new / MANIFEST).write_bytes(text)


def _tables(parts: Sequence[str]) -> Iterator[Any]:
    """All tables, a row group at a time; at least an empty one."""
    for number, part in enumerate(parts):
        system, path = resolve(part)
        with arrow().parquet.ParquetFile(path, filesystem=system) as file:
            if number == 0:
                yield file.schema_arrow.empty_table()
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)
