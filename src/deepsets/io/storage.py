"""Files at local paths or URIs: ``s3://``, ``gs://``, ``abfs://``, ``hdfs://``, any URL that fsspec knows."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from ..files import atomic_folder, atomic_path
from .arrow_types import arrow
from .files import format_of
from .table_writer import check_folder, check_output, writer

MANIFEST = "_deepsets.json"  # readers of folders of Parquet files skip names that begin with an underscore
_SORTED = 128 << 20  # bytes of Parquet files that are sorted in memory
_GROUP = 1 << 16  # rows of a row group


def is_remote(uri: str | Path) -> bool:
    """Return whether a location is not on the local file system.

    Parameters
    ----------
    uri : str or Path
        A path or URI.
    """
    return "://" in str(uri) and not str(uri).startswith("file://")


def resolve(uri: str | Path) -> tuple[Any, str]:
    """Return the Arrow file system of a location, and the path in it.

    Parameters
    ----------
    uri : str or Path
        A path or URI.
    """
    text = str(uri)
    if not is_remote(text):
        return _connect("")[0], str(Path(text.removeprefix("file://")).absolute())
    scheme, _, rest = text.partition("://")
    host, slash, path = rest.partition("/")
    system, prefix = _connect(f"{scheme}://{host}")
    return system, (prefix + slash + path).rstrip("/")


@functools.lru_cache(maxsize=64)
def _connect(root: str) -> tuple[Any, str]:
    from pyarrow import fs

    if not root:
        return fs.LocalFileSystem(), ""
    try:
        return fs.FileSystem.from_uri(root)
    except (arrow().ArrowInvalid, arrow().ArrowNotImplementedError):
        try:
            from fsspec.core import url_to_fs

            system, path = url_to_fs(root)
        except (ImportError, ValueError) as error:
            raise ValueError(f"{root} cannot be opened: {error}. Wanted a URI that Arrow or fsspec knows.") from None
        return fs.PyFileSystem(fs.FSSpecHandler(system)), path.rstrip("/")


def list_files(uri: str | Path) -> list[str]:
    """List the files of a table: the file itself, or all Parquet files below a folder, in the order of their names.

    Parameters
    ----------
    uri : str or Path
        A file or folder. Names that begin with ``.`` or ``_`` are skipped, as other tools do.
    """
    from pyarrow import fs

    system, path = resolve(uri)
    info = system.get_file_info(path)
    if info.type == fs.FileType.NotFound:
        raise ValueError(f"{uri} does not exist.")
    if info.type == fs.FileType.File:
        format_of(Path(path))
        return [str(uri)]
    inner = [
        file.path[len(path) :].strip("/")
        for file in system.get_file_info(fs.FileSelector(path, recursive=True))
        if file.type == fs.FileType.File and file.extension in ("parquet", "pq")
    ]
    found = [name for name in inner if not any(part.startswith((".", "_")) for part in name.split("/"))]
    if not found:
        raise ValueError(f"the folder {uri} holds no Parquet files.")
    return [f"{str(uri).rstrip('/')}/{name}" for name in sorted(found)]


def file_stamps(files: Sequence[str]) -> list[list[Any]]:
    """Return name, size and time of change of each file, which identify its contents.

    Parameters
    ----------
    files : sequence of str
        Paths or URIs.
    """
    infos = [system.get_file_info(path) for system, path in map(resolve, files)]
    return [[str(file), info.size, info.mtime_ns or 0] for file, info in zip(files, infos, strict=True)]


def read_footers(files: Sequence[str]) -> list[Any]:
    """Read the metadata of Parquet files, several at a time.

    Parameters
    ----------
    files : sequence of str
        Paths or URIs.
    """
    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(_footer, files))


def _footer(file: str) -> Any:
    system, path = resolve(file)
    try:
        return arrow().parquet.read_metadata(path, filesystem=system)
    except (arrow().ArrowException, OSError) as error:
        raise ValueError(f"{file} cannot be read: {str(error).splitlines()[0].rstrip('.')}.") from None


def local_folder(uri: str | Path) -> Path:
    """Return a folder as a local one: itself, or a copy of a remote folder.

    Parameters
    ----------
    uri : str or Path
        A path or URI.
    """
    if not is_remote(uri):
        return Path(str(uri).removeprefix("file://"))
    from pyarrow import fs

    system, path = resolve(uri)
    if system.get_file_info(path).type != fs.FileType.Directory:
        raise ValueError(f"{uri} does not exist, or is not a folder.")
    copy = tempfile.mkdtemp(prefix="deepsets-model-")
    fs.copy_files(path, copy, source_filesystem=system, destination_filesystem=fs.LocalFileSystem())
    return Path(copy)


def read_manifest(folder: str | Path) -> dict[str, Any] | None:
    """Return the description that :func:`publish` has written into a folder, or None.

    Parameters
    ----------
    folder : str or Path
        A path or URI.
    """
    system, path = resolve(folder)
    try:
        with system.open_input_stream(f"{path}/{MANIFEST}") as file:
            return json.loads(file.read())
    except OSError:
        return None


def check_target(output: str, *, overwrite: bool) -> None:
    """Raise a ValueError, before any work, if an output exists, has an unknown extension or cannot be written.

    Parameters
    ----------
    output : str
        A file, whose extension gives the format, or a folder (no extension) for Parquet files.
    overwrite : bool
        Whether an existing output is replaced; a folder only if it was written by :func:`publish`.
    """
    system, path = resolve(output)
    if Path(path).suffix and not is_remote(output):
        check_output(Path(path), overwrite)
        return
    if Path(path).suffix:
        format_of(Path(path))
    exists = system.get_file_info(path).type.name != "NotFound"
    foreign = exists and not Path(path).suffix and read_manifest(output) is None
    if exists and (foreign or not overwrite):
        what = "exists, and was not written by this package" if foreign else "exists"
        raise ValueError(f"{output} {what}: choose another path{'' if foreign else ', or --overwrite'}.")
    try:
        if is_remote(output):
            with system.open_output_stream(f"{path}.check") as file:
                file.write(b"")
            system.delete_file(f"{path}.check")
        else:
            check_folder(Path(path))
    except OSError as error:
        raise ValueError(f"{output} cannot be written: {str(error).splitlines()[0].rstrip('.')}.") from None


def publish(
    parts: Sequence[str], output: str, manifest: dict[str, Any], sort: str | None = None, schema: Any = None
) -> None:
    """Combine Parquet files to an output, which appears when it is complete.

    Parameters
    ----------
    parts : sequence of str
        Finished files of one schema, local or remote.
    output : str
        A file, whose extension gives the format, or a folder (no extension), local or remote.
    manifest : dict
        Description of the output, written into a folder.
    sort : str, optional
        Column by which a single file is sorted, if it is small enough to be sorted in memory.
    schema : pyarrow.Schema, optional
        Schema of a single file; by default that of the parts.
    """
    system, path = resolve(output)
    text = json.dumps(manifest, indent=1).encode()
    if Path(path).suffix and is_remote(output):
        with tempfile.TemporaryDirectory(prefix="deepsets-") as folder:
            _write_table(parts, Path(folder) / Path(path).name, sort, schema)
            _copy(f"{folder}/{Path(path).name}", output)
    elif Path(path).suffix:
        _write_table(parts, Path(path), sort, schema)
    elif is_remote(output):
        delete_folder(output)  # of an earlier run
        for number, part in enumerate(parts):
            _copy(part, f"{output}/part-{number:06d}.parquet")
        with system.open_output_stream(f"{path}/{MANIFEST}") as stream:  # last: it says that the output is complete
            stream.write(text)
    else:
        with atomic_folder(path) as new:
            for number, part in enumerate(parts):
                _copy(part, str(new / f"part-{number:06d}.parquet"))
            (new / MANIFEST).write_bytes(text)


def _write_table(parts: Sequence[str], file: Path, sort: str | None, schema: Any) -> None:
    tables = _tables(parts)
    if schema is not None:
        tables = (table.cast(schema) for table in tables)
    if sort and sum(size for _, size, _ in file_stamps(parts)) < _SORTED:
        tables = iter([arrow().concat_tables(tables).sort_by(sort)])
    first = next(tables)
    if format_of(file) == "parquet":
        with atomic_path(file) as temporary, parquet_writer(temporary, first.schema) as sink:
            for table in chain([first], tables):
                sink.write_table(table, _GROUP)
        return
    with writer(file) as write:
        for table in chain([first], tables):
            write(table)


def _tables(parts: Sequence[str]) -> Iterator[Any]:
    """All tables, a row group at a time; at least an empty one."""
    for number, part in enumerate(parts):
        system, path = resolve(part)
        with arrow().parquet.ParquetFile(path, filesystem=system) as file:
            if number == 0:
                yield file.schema_arrow.empty_table()
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)


def parquet_writer(sink: Any, schema: Any) -> Any:
    """Open a Parquet file for writing, without dictionaries for vectors: these would cost ten times the writing.

    Parameters
    ----------
    sink : str, Path or file object
        Local file, or an open one.
    schema : pyarrow.Schema
        Schema of its tables.
    """
    types = arrow().types
    plain = [field.name for field in schema if not types.is_fixed_size_list(field.type)]
    return arrow().parquet.ParquetWriter(sink, schema, use_dictionary=plain)


@contextmanager
def open_output(uri: str) -> Iterator[Any]:
    """Open a file for writing, which appears when the block ends without an error.

    Parameters
    ----------
    uri : str
        A path or URI.
    """
    system, path = resolve(uri)
    if is_remote(uri):
        with system.open_output_stream(path) as stream:
            yield stream
    else:
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            yield file


def delete_folder(uri: str) -> None:
    """Delete a folder and what is in it, if it exists.

    Parameters
    ----------
    uri : str
        A path or URI.
    """
    system, path = resolve(uri)
    if system.get_file_info(path).type.name == "Directory":
        system.delete_dir(path)


def _copy(source: str, target: str) -> None:
    (here, a), (there, b) = resolve(source), resolve(target)
    if is_remote(source) or is_remote(target):
        with here.open_input_stream(a) as file, there.open_output_stream(b) as out:
            shutil.copyfileobj(file, out, 1 << 22)
        return
    try:
        Path(b).hardlink_to(a)
    except OSError:
        shutil.copyfile(a, b)
