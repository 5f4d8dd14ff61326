"""CelebA (Liu et al. 2015): aligned faces with 40 attributes, and sets of them with one that stands out."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .folder import data_folder

SOURCE = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"


class Faces(NamedTuple):
    """Images (n, 3, size, size) as bytes, attributes (n, 40) as yes and no, and their names."""

    images: np.ndarray
    attributes: np.ndarray
    names: list[str]


def load(size: int = 64, count: int | None = None, folder: str | Path | None = None) -> Faces:
    """Reads the faces of the folder (default `$DEEPSETS_DATA/celeba`), cut to the face and scaled to size x size.

    >>> load(size=40, count=1000).images.shape  # doctest: +SKIP
    (1000, 3, 40, 40)

    Images: `img_align_celeba/*.jpg` as published, or one `*.tar` of them; attributes: `list_attr_celeba*.txt[.gz]`.
    Only images with attributes are read, in the order of their names.
    """
    folder = data_folder() / "celeba" if folder is None else Path(folder)
    known, names = read_attributes(_one(folder, "list_attr_celeba*.txt*", "the attributes list_attr_celeba.txt"))
    images, attributes = [], []
    for name, content in _files(folder):
        if name in known:
            images.append(_face(content, size))
            attributes.append(known[name])
        if count is not None and len(images) == count:
            break
    if not images:
        raise ValueError(f"no image in {folder} has attributes: the list names {next(iter(known))} and so on.")
    return Faces(np.stack(images), np.stack(attributes), names)


def read_attributes(path: Path) -> tuple[dict[str, np.ndarray], list[str]]:
    """The published table: a count, the names, then a file name and 40 times 1 or -1 in each line."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        file.readline()
        names = file.readline().split()
        known = {}
        for number, line in enumerate(file, 3):
            image, *flags = line.split()
            if len(flags) != len(names):
                raise ValueError(f"{path}, line {number}: {len(flags)} attributes, but {len(names)} names.")
            known[image] = np.array(flags, dtype=np.int8) > 0
    return known, names


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    if (folder / "img_align_celeba").is_dir():
        for path in sorted((folder / "img_align_celeba").glob("*.jpg")):
            yield path.name, path.read_bytes()
        return
    with tarfile.open(_one(folder, "*.tar", "the folder img_align_celeba, or a .tar of it")) as tar:
        members = {Path(member.name).name: member for member in tar.getmembers() if member.name.endswith(".jpg")}
        for name in sorted(members):
            content = tar.extractfile(members[name])
            assert content is not None
            yield name, content.read()


def _face(content: bytes, size: int) -> np.ndarray:
    """(3, size, size): the middle square, where the aligned face is."""
    from PIL import Image

    image = Image.open(io.BytesIO(content)).convert("RGB")
    width, height = image.size
    side = round(0.86 * width)
    left, top = (width - side) // 2, round(0.55 * height) - side // 2
    image = image.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image).transpose(2, 0, 1)


def _one(folder: Path, pattern: str, what: str) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise FileNotFoundError(f"{folder} holds no {pattern}: wanted {what}, from {SOURCE}.")
    return found[0]
