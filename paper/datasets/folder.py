"""Where data sets lie: `$DEEPSETS_DATA`, or the user's cache."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder() -> Path:
    """`$DEEPSETS_DATA`, or `~/.cache/deepsets` (`$XDG_CACHE_HOME/deepsets` where that is set)."""
    if chosen := os.environ.get("DEEPSETS_DATA"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deepsets"


def data_file(name: str, file: str, source: str) -> Path:
    """The file of data set `name`, or an error that says where it was looked for and where it comes from.

    >>> data_file("mnist", "train-images", source="http://yann.lecun.com/exdb/mnist")
    Traceback (most recent call last):
    FileNotFoundError: ...mnist/train-images is not there...
    """
    path = data_folder() / name / file
    if not path.exists():
        found = os.environ.get("DEEPSETS_DATA")
        raise FileNotFoundError(
            f"{path} is not there. Put {file} from {source} into the folder {name!r} below $DEEPSETS_DATA "
            f"(now {found!r}), or below the user's cache."
        )
    return path
