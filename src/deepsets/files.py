"""Atomic writes and locks: a file or folder is either the old one or the new one, never half of one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["FileInUseError", "atomic_folder", "atomic_path", "locked"]


class FileInUseError(OSError):
    """Another process is writing to the same file or folder."""


@contextlib.contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Write a file under a temporary name, and rename it when the block ends without an error.

    Parameters
    ----------
    path : str or Path
        The final file. Its folder is created where it is missing.

    Yields
    ------
    Path
        The temporary file, in the same folder, to be written by the block. It is removed if the block raises.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_path(Path(folder) / "numbers.txt") as temporary:
    ...         _ = temporary.write_text("1 2 3")
    ...     (Path(folder) / "numbers.txt").read_text()
    '1 2 3'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # One name per target: what a killed process left behind is overwritten by the next write.
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Fill a folder under a temporary name, and put it in the place of `path` when the block ends without an error.

    A folder that exists at `path` is replaced in one step where the system can exchange two names (Linux), so that
    at every moment either the old or the new folder is there.

    Parameters
    ----------
    path : str or Path
        The final folder. The caller decides whether an existing one may be replaced.

    Yields
    ------
    Path
        The temporary folder, beside the final one.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for stale in path.parent.glob(f".{path.name}.tmp.*"):  # left behind by a killed process
        if not _is_locked(stale):
            shutil.rmtree(stale, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.tmp."))
    try:
        with locked(temporary):
            temporary.chmod(0o755)  # mkdtemp creates folders that are closed to others
            yield temporary
            for file in temporary.rglob("*"):
                _sync(file)
            if not path.exists():
                temporary.rename(path)
            elif not _exchange(temporary, path):
                old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.tmp."))
                path.rename(old)
                temporary.rename(path)
                shutil.rmtree(old, ignore_errors=True)
            _sync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Hold an exclusive lock for `path` during the block.

    The lock belongs to the process and ends with it, also when it is killed. Only an empty hidden file may be left
    behind then, which the next user of the lock removes.

    Parameters
    ----------
    path : str or Path
        The file or folder to be written. It need not exist.

    Raises
    ------
    FileInUseError
        If another process, or another block of this one, holds the lock.
    """
    name = _lock_name(Path(path))
    descriptor = _acquire(name)
    if descriptor is None:
        raise FileInUseError(f"{path} is being written by another process: wait for it, or choose another path.")
    try:
        yield
    finally:
        _release(name, descriptor)


def _lock_name(path: Path) -> Path:
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(f".{path.name}.lock")


def _is_locked(path: Path) -> bool:
    name = _lock_name(path)
    if not name.exists():
        return False
    descriptor = _acquire(name)
    if descriptor is None:
        return True
    _release(name, descriptor)
    return False


def _release(name: Path, descriptor: int) -> None:
    """Remove the file while it is still locked, so that no other process can hold a lock on a removed name."""
    with contextlib.suppress(OSError):  # Windows cannot remove a file that is open: the empty file stays
        name.unlink()
    os.close(descriptor)


def _acquire(name: Path) -> int | None:
    """A descriptor that holds the lock, or None if somebody else has it."""
    while True:
        descriptor = os.open(name, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            _lock(descriptor)
        except (BlockingIOError, PermissionError):
            os.close(descriptor)
            return None
        # The holder before may have removed the name between our open and our lock: then the lock is worth nothing.
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(descriptor).st_ino == name.stat().st_ino:
                return descriptor
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Lock an open file; the system frees the lock when the descriptor is closed or the process ends."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sync(path: Path) -> None:
    if path.is_dir() and sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange(a: Path, b: Path) -> bool:
    """Swap two names in one step; False where the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    current_folder, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return renameat2(current_folder, os.fsencode(a), current_folder, os.fsencode(b), exchange) == 0
