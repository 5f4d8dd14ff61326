"""ESPgame and IAPRTC-12.5 as Guillaumin et al. (2009) distribute them: vectors in binary files, names in text files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from .folder import data_file
from .tagged import TagData, Tagged

SOURCE = "https://lear.inrialpes.fr/people/guillaumin/data.php"

# Each row of a file begins with its width. By extension: the type of the width, the type of the values.
_TYPES = {"hvec": ("<u2", "<u2"), "hvec32": ("<u4", "<u4"), "fvec": ("<u4", "<f4"), "dvec": ("<u4", "<f8")}


def read_matrix(path: str | Path) -> np.ndarray:
    """(n, d) from `.hvecs` (uint16), `.hvecs32` (uint32), `.fvec(s)` (float32), `.dvec(s)` (float64), or text.

    Binary files hold rows, each a width and so many values, little-endian; width is uint16 in `.hvecs`, else uint32.
    Any other file is text: a row a line, numbers between blanks or commas (also `.gz`).
    """
    path = Path(path)
    binary = re.fullmatch(r"\.([hfd]vec)s?(32)?", path.suffix.lower())
    kind = binary and binary[1] + (binary[2] or "")
    if kind not in _TYPES:
        try:
            return np.loadtxt(path, delimiter="," if "," in _first_line(path) else None, ndmin=2)
        except ValueError as error:
            raise ValueError(f"{path} is no matrix of numbers: {error}") from error
    head, value = _TYPES[kind]
    content = path.read_bytes()
    if len(content) < np.dtype(head).itemsize:
        raise ValueError(f"{path} is empty: wanted rows that begin with their width.")
    width = int(np.frombuffer(content, head, 1)[0])
    row = np.dtype([("width", head), ("values", value, (width,))])
    if len(content) % row.itemsize:
        raise ValueError(
            f"{path} has {len(content)} bytes, no multiple of the {row.itemsize} of a row of {width} values: cut off?"
        )
    rows = np.frombuffer(content, row)
    if other := np.flatnonzero(rows["width"] != width).tolist():
        raise ValueError(f"{path}: row {other[0]} has width {rows['width'][other[0]]}, row 0 has {width}.")
    return rows["values"].copy()


def load(name: str, features: Sequence[str] = ("Gist.fvec",)) -> TagData:
    """`load("espgame")` or `load("iaprtc12")`: tags and features of the distributed split, read from the data folder.

    Files: NAME_dictionary.txt, NAME_{train,test}_list.txt, NAME_{train,test}_annot.hvecs, and for each of `features`
    NAME_{train,test}_FEATURE. Several features stand side by side, each divided by its mean length in training.
    """
    names = data_file(name, f"{name}_dictionary.txt", SOURCE).read_text().split()
    parts: list[Tagged] = []
    lengths: list[float] = []
    for part in ("train", "test"):
        tags = read_matrix(data_file(name, f"{name}_{part}_annot.hvecs", SOURCE))
        images = data_file(name, f"{name}_{part}_list.txt", SOURCE).read_text().split()
        if tags.shape != (len(images), len(names)):
            raise ValueError(
                f"{name} {part}: tags of shape {tags.shape}, but {len(images)} images and {len(names)} names."
            )
        blocks = [read_matrix(data_file(name, f"{name}_{part}_{kind}", SOURCE)).astype(np.float32) for kind in features]
        lengths = lengths or [float(np.linalg.norm(block, axis=1).mean()) or 1.0 for block in blocks]
        joined = [block / length for block, length in zip(blocks, lengths, strict=True)]
        parts.append(
            Tagged(images, csr_array(tags > 0).astype(np.uint8), np.concatenate(joined, 1) if joined else None)
        )
    return TagData(parts[0], None, parts[1], names)


def _first_line(path: Path) -> str:
    import gzip

    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        return lines.readline()
