"""Files at local paths or URIs: ``s3://``, ``gs://``, ``abfs://``, ``hdfs://``, any URL that fsspec knows."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


class TableError(ValueError):
    """A table that cannot be read or written, or whose contents cannot be used."""


def arrow() -> Any:
    """Import pyarrow with the submodules that tables need."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.dataset
        import pyarrow.fs
        import pyarrow.json
        import pyarrow.parquet
    except ImportError:
        raise ImportError("reading and writing tables needs pyarrow: pip install 'deepsets[data]'.") from None
    return pyarrow


def format_of(path: str | Path) -> str:
    """Return the format of a table file, by its extension."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise TableError(f"{path} has an unsupported file extension: use one of {', '.join(FORMATS)}.")
    return FORMATS[suffix]


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turn every error of a reader into a sentence with the name of the file."""
    try:
        yield
    except (TableError, ImportError):
        raise
    except MemoryError:
        raise TableError(f"{path} cannot be read: it needs more memory than this machine has.") from None
    except Exception as error:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        if "empty" in first.lower() and format_of(path) in ("csv", "json"):
            first = "it is empty"
        raise TableError(f"{path} cannot be read: {first.rstrip('.')}.") from None


def is_remote(uri: str | Path) -> bool:
    """Return whether a location is not on the local file system."""
    return "://" in str(uri) and not str(uri).startswith("file://")


def resolve(uri: str | Path) -> tuple[Any, str]:
    """Return the Arrow file system of a location, and the path in it."""
    text = str(uri)
    if not is_remote(text):
        return _connect("")[0], str(Path(text.removeprefix("file://")).absolute())
    scheme, _, rest = text.partition("://")
    host, slash, path = rest.partition("/")
    system, prefix = _connect(f"{scheme}://{host}")
    return system, (prefix + slash + path).rstrip("/")


@functools.lru_cache(maxsize=64)
def _connect(root: str) -> tuple[Any, str]:
    fs = arrow().fs
    if not root:
        return fs.LocalFileSystem(), ""
    try:
        return fs.FileSystem.from_uri(root)
    except (arrow().ArrowInvalid, arrow().ArrowNotImplementedError):
        try:
            from fsspec.core import url_to_fs

            system, path = url_to_fs(root)
        except (ImportError, ValueError) as error:
            raise TableError(f"{root} cannot be opened: {error}. Wanted a URI that Arrow or fsspec knows.") from None
        return fs.PyFileSystem(fs.FSSpecHandler(system)), path.rstrip("/")


def kind_of(uri: str | Path) -> str:
    """Return what a location is: ``"File"``, ``"Directory"`` or ``"NotFound"``."""
    system, path = resolve(uri)
    return system.get_file_info(path).type.name


def list_files(uri: str | Path) -> list[str]:
    """List the files of a table: the file itself, or all Parquet files below a folder, in the order of their names.

    Names that begin with ``.`` or ``_`` are skipped, as other tools do.
    """
    kind = kind_of(uri)
    if kind == "NotFound":
        raise TableError(f"{uri} does not exist.")
    if kind == "File":
        format_of(uri)
        return [str(uri)]
    system, path = resolve(uri)
    inner = [
        file.path[len(path) :].strip("/")
        for file in system.get_file_info(arrow().fs.FileSelector(path, recursive=True))
        if file.is_file and file.extension in ("parquet", "pq")
    ]
    found = [name for name in inner if not any(part.startswith((".", "_")) for part in name.split("/"))]
    if not found:
        raise TableError(f"the folder {uri} holds no Parquet files.")
    return [f"{str(uri).rstrip('/')}/{name}" for name in sorted(found)]


def file_stamps(files: Sequence[str]) -> list[list[Any]]:
    """Return name, size and time of change of each file, which identify its contents."""
    infos = [system.get_file_info(path) for system, path in map(resolve, files)]
    return [[str(file), info.size, info.mtime_ns or 0] for file, info in zip(files, infos, strict=True)]


def read_footers(files: Sequence[str]) -> list[Any]:
    """Read the metadata of Parquet files, several at a time."""

    def footer(file: str) -> Any:
        system, path = resolve(file)
        with reading(file):
            return arrow().parquet.read_metadata(path, filesystem=system)

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(footer, files))


def local_folder(uri: str | Path) -> Path:
    """Return a folder as a local one: itself, or a copy of a remote folder."""
    if not is_remote(uri):
        return Path(str(uri).removeprefix("file://"))
    if kind_of(uri) != "Directory":
        raise ValueError(f"{uri} does not exist, or is not a folder.")
    system, path = resolve(uri)
    copied = tempfile.mkdtemp(prefix="deepsets-model-")
    arrow().fs.copy_files(path, copied, source_filesystem=system, destination_filesystem=resolve("")[0])
    return Path(copied)


def delete_folder(uri: str) -> None:
    """Delete a folder and what is in it, if it exists."""
    if kind_of(uri) == "Directory":
        system, path = resolve(uri)
        system.delete_dir(path)


def copy_file(source: str, target: str) -> None:
    """Copy a file, or give a local one a second name."""
    (here, a), (there, b) = resolve(source), resolve(target)
    if is_remote(source) or is_remote(target):
        with here.open_input_stream(a) as file, there.open_output_stream(b) as out:
            shutil.copyfileobj(file, out, 1 << 22)
        return
    try:
        Path(b).hardlink_to(a)
    except OSError:
        shutil.copyfile(a, b)
