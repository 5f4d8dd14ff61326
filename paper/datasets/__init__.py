"""Readers of the data sets, one module per field, and generators of similar data."""

import os
from pathlib import Path

__all__ = ["cache_folder", "data_file", "data_folder"]


def data_folder() -> Path:
    """Return `$DEEPSETS_DATA`, or the folder in the user's cache."""
    if chosen := os.environ.get("DEEPSETS_DATA"):
        return Path(chosen).expanduser()
    return cache_folder()


def cache_folder() -> Path:
    """Return `~/.cache/deepsets`, or `$XDG_CACHE_HOME/deepsets` if that is set."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deepsets"


def data_file(name: str, file: str, source: str) -> Path:
    """Return the path of a file of data set `name`, or raise an error that says where to get it.

    >>> data_file("mnist", "train-images", source="http://yann.lecun.com/exdb/mnist")
    Traceback (most recent call last):
    FileNotFoundError: ...mnist/train-images does not exist...
    """
    path = data_folder() / name / file
    if not path.exists():
        found = os.environ.get("DEEPSETS_DATA")
        raise FileNotFoundError(
            f"{path} does not exist. Put {file} from {source} into the folder {name!r} below $DEEPSETS_DATA "
            f"(now {found!r}), or below the user's cache."
        )
    return path
