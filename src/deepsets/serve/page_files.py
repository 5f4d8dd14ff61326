"""Files of the explorer page, read once at start: a request can only name one of them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
}


class File(NamedTuple):
    """A file of the page.

    Attributes
    ----------
    content : bytes
        What is sent.
    media_type : str
        Its type.
    etag : str
        Changes with the content.
    """

    content: bytes
    media_type: str
    etag: str


def page_files(folder: Path = Path(__file__).parent / "page") -> dict[str, File]:
    """Map paths of the server to files: ``/page/NAME`` for each, and ``/`` for index.html.

    Parameters
    ----------
    folder : Path
        Where the files are.

    Returns
    -------
    dict
        Path to `File`.
    """
    paths = sorted(path for path in folder.rglob("*") if path.suffix in _KINDS) if folder.is_dir() else []
    files = {}
    for path in paths:
        content = path.read_bytes()
        tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        files[f"/page/{path.relative_to(folder).as_posix()}"] = File(content, _KINDS[path.suffix], tag)
    if "/page/index.html" in files:
        files["/"] = files["/page/index.html"]
    return files
