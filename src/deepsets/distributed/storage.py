"""Tables, models and outputs at local paths or URIs (``s3://``, ``gs://``, ``abfs://``, ``hdfs://``, any fsspec URL)."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

from ..files import atomic_folder, atomic_path
from ..io.files import arrow, format_of
from ..io.table_writer import writer

SORTED = 128 << 20  # bytes of Parquet files that are sorted in memory
GROUP = 1 << 16  # rows of a row group
MANIFEST = "_deepsets.json"  # readers of folders of Parquet files skip names that begin with an underscore


def is_remote(uri: str | Path) -> bool:
    """Return whether a location is a URI of another file system than the local one.

    Parameters
    ----------
    uri : str or Path
        A path or URI.
    """
    return "://" in str(uri) and not str(uri).startswith("file://")


def resolve(uri: str | Path) -> tuple[Any, str]:
    """Return the Arrow file system of a path or URI, and the path in it.

    Parameters
    ----------
    uri : str or Path
        A local path, or a URI that Arrow or fsspec knows.
    """
    text = str(uri)
    if not is_remote(text):
        return _file_system(""), str(Path(text.removeprefix("file://")).absolute())
    scheme, _, rest = text.partition("://")
    host = rest.partition("/")[0]
    system, prefix = _file_system(f"{scheme}://{host}"), _prefix(f"{scheme}://{host}")
    return system, prefix + rest[len(host) :].rstrip("/")


@functools.lru_cache(maxsize=64)
def _connected(root: str) -> tuple[Any, str]:
    from pyarrow import fs

    if not root:
        return fs.LocalFileSystem(), ""
    try:
        return fs.FileSystem.from_uri(root)
    except (arrow().ArrowInvalid, arrow().ArrowNotImplementedError):
        try:
            import fsspec

            system, path = fsspec.core.url_to_fs(root)
        except (ImportError, ValueError) as error:
            raise ValueError(f"{root} cannot be opened: {error}. Wanted a URI that Arrow or fsspec knows.") from None
        return fs.PyFileSystem(fs.FSSpecHandler(system)), path.rstrip("/")


def _file_system(root: str) -> Any:
    return _connected(root)[0]


def _prefix(root: str) -> str:
    return _connected(root)[1]


def files_of(uri: str | Path) -> list[str]:
    """List the table at a location: the file itself, or all Parquet files below a folder, in the order of their names.

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
    found = []
    for file in system.get_file_info(fs.FileSelector(path, recursive=True)):
        inner = file.path[len(path) :].strip("/")
        hidden = any(part.startswith((".", "_")) for part in inner.split("/"))
        if file.type == fs.FileType.File and not hidden and inner.endswith((".parquet", ".pq")):
            found.append(f"{str(uri).rstrip('/')}/{inner}")
    if not found:
        raise ValueError(f"the folder {uri} holds no Parquet files.")
    return sorted(found)


def stamps(files: list[str]) -> list[tuple[str, int, int]]:
    """Return name, size and time of change of each file: a run over changed files is another run.

    Parameters
    ----------
    files : list of str
        Paths or URIs.
    """
    infos = [system.get_file_info(path) for system, path in map(resolve, files)]
    return [(str(file), info.size, info.mtime_ns or 0) for file, info in zip(files, infos, strict=True)]


def footers(files: list[str]) -> list[Any]:
    """Read the metadata of Parquet files, several at a time.

    Parameters
    ----------
    files : list of str
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


def read_text(uri: str) -> str | None:
    """Read a small text file, or return None where there is none.

    Parameters
    ----------
    uri : str
        A path or URI.
    """
    system, path = resolve(uri)
    try:
        with system.open_input_stream(path) as file:
            return file.read().decode()
    except FileNotFoundError:
        return None


def local_folder(uri: str) -> Path:
    """Return a folder as a local one: itself, or a copy of a remote folder.

    Parameters
    ----------
    uri : str
        A path or URI.
    """
    if not is_remote(uri):
        return Path(uri.removeprefix("file://"))
    from pyarrow import fs

    system, path = resolve(uri)
    if system.get_file_info(path).type != fs.FileType.Directory:
        raise ValueError(f"{uri} does not exist, or is not a folder.")
    copy = tempfile.mkdtemp(prefix="deepsets-model-")
    fs.copy_files(path, copy, source_filesystem=system, destination_filesystem=fs.LocalFileSystem())
    return Path(copy)


def check_output(output: str, *, overwrite: bool) -> None:
    """Raise a ValueError, before any work, if an output exists, has an unknown extension or cannot be written.

    Parameters
    ----------
    output : str
        A file, whose extension gives the format, or a folder (no extension) for Parquet files.
    overwrite : bool
        Whether an existing output is replaced; a folder only if it was written by this package.
    """
    from pyarrow import fs

    system, path = resolve(output)
    if Path(path).suffix:
        format_of(Path(path))
    kind = system.get_file_info(path).type
    foreign = kind == fs.FileType.Directory and (Path(path).suffix or read_text(f"{output}/{MANIFEST}") is None)
    if kind != fs.FileType.NotFound and (foreign or not overwrite):
        what = "exists, and is not an output of this command" if foreign else "exists"
        raise ValueError(f"{output} {what}: choose another path" + ("." if foreign else ", or --overwrite."))
    if is_remote(output):
        try:
            with system.open_output_stream(f"{path}.check") as file:
                file.write(b"")
            system.delete_file(f"{path}.check")
        except OSError as error:
            raise ValueError(f"{output} cannot be written: {str(error).splitlines()[0]}.") from None
    elif not Path(path).parent.is_dir():
        raise ValueError(f"the folder {Path(path).parent} does not exist.")


def publish(parts: list[str], output: str, manifest: dict[str, Any], sort: str | None = None) -> None:
    """Combine Parquet files to the output, which appears when it is complete.

    Parameters
    ----------
    parts : list of str
        Finished files of one schema, local or remote.
    output : str
        A file, whose extension gives the format, or a folder (no extension), local or remote.
    manifest : dict
        Description of the output, written into a folder.
    sort : str, optional
        Column by which the rows of a single file are sorted, if they are few enough to be sorted in memory.
    """
    system, path = resolve(output)
    text = json.dumps(manifest, indent=1).encode()
    if Path(path).suffix:
        with tempfile.TemporaryDirectory(prefix="deepsets-") as folder:
            file = Path(folder) / Path(path).name if is_remote(output) else Path(path)
            _write_table(parts, file, sort)
            if is_remote(output):
                _copy(str(file), output)
    elif is_remote(output):
        if system.get_file_info(path).type.name == "Directory":  # of an earlier run
            system.delete_dir_contents(path)
        for number, part in enumerate(parts):
            _copy(part, f"{output}/part-{number:06d}.parquet")
        with system.open_output_stream(f"{path}/{MANIFEST}") as stream:  # last: it says that the output is complete
            stream.write(text)
    else:
        with atomic_folder(path) as new:
            for number, part in enumerate(parts):
                _copy(part, str(new / f"part-{number:06d}.parquet"))
            (new / MANIFEST).write_bytes(text)


def _write_table(parts: list[str], file: Path, sort: str | None) -> None:
    tables = _tables(parts)
    if sort and sum(info[1] for info in stamps(parts)) < SORTED:
        tables = iter([arrow().concat_tables(tables).sort_by(sort)])
    first = next(tables)
    if format_of(file) != "parquet":
        with writer(file) as write:
            for table in chain([first], tables):
                write(table)
        return
    with atomic_path(file) as temporary, parquet_writer(temporary, first.schema) as sink:
        for table in chain([first], tables):
            sink.write_table(table, GROUP)


def _tables(parts: list[str]) -> Iterator[Any]:
    """All tables, a row group at a time; at least an empty one."""
    for number, part in enumerate(parts):
        system, path = resolve(part)
        with arrow().parquet.ParquetFile(path, filesystem=system) as file:
            if number == 0:
                yield file.schema_arrow.empty_table()
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)


def parquet_writer(path: str | Path, schema: Any) -> Any:
    """Open a Parquet file for writing, without dictionaries for vectors, which would cost ten times the writing.

    Parameters
    ----------
    path : str or Path
        A local file.
    schema : pyarrow.Schema
        Schema of its tables.
    """
    types = arrow().types
    plain = [field.name for field in schema if not types.is_fixed_size_list(field.type)]
    return arrow().parquet.ParquetWriter(path, schema, use_dictionary=plain)


def _copy(source: str, target: str) -> None:
    (here, a), (there, b) = resolve(source), resolve(target)
    if not is_remote(source) and not is_remote(target):
        try:
            Path(b).hardlink_to(a)
        except OSError:
            shutil.copyfile(a, b)
        return
    arrow().fs.copy_files(a, b, source_filesystem=here, destination_filesystem=there)
