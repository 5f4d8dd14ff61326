"""CelebA (Liu et al. 2015): aligned faces with 40 attributes, and sets of images with an odd one out."""

import gzip
import io
import tarfile
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from deepsets.sets import Sets
from deepsets.train import Batch

from . import data_folder
from .digits import deform

SOURCE = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"


class Faces(NamedTuple):
    """Images (n, 3, size, size) as bytes, attributes (n, 40) as yes and no, and their names."""

    images: np.ndarray
    attributes: np.ndarray
    names: list[str]


def load(size: int = 64, count: int | None = None, folder: str | Path | None = None) -> Faces:
    """Read the faces of the folder (default `$DEEPSETS_DATA/celeba`), cut to the face and scaled to size x size.

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


def pairs(attributes: Tensor) -> tuple[Tensor, Tensor]:
    """Who has both attributes of a pair, and who has none of them: (U, K) yes or no -> twice (U, K (K − 1) / 2).

    >>> both, none = pairs(torch.tensor([[True, True, False], [False, False, True]]))
    >>> both.int().tolist(), none.int().tolist()
    ([[1, 0, 0], [0, 0, 0]], [[0, 0, 0], [1, 0, 0]])
    """
    one, other = torch.tensor(list(combinations(range(attributes.shape[1]), 2))).T
    return attributes[:, one] & attributes[:, other], ~attributes[:, one] & ~attributes[:, other]


def pool_for(
    rows: Tensor, shares: Tensor, planted: int = 8, size: int = 16, least: float = 0.01
) -> tuple[Tensor, Tensor]:
    """Rows of a pool of images: those given, and `size` that share each of some conditions; and these conditions.

    >>> digit = torch.arange(400)[:, None] % 4 == torch.arange(4)
    >>> rows, conditions = pool_for(torch.arange(10), digit, planted=2)
    >>> len(rows) > 32, bool((digit[rows][:, conditions].sum(0) >= 16).all())
    (True, True)

    Few images of a pool share what is rare, so sets with a rare condition would never be made. Planted conditions are
    drawn from all that at least one in a hundred (`least`) of all images, shares (U, C), fulfil.
    """
    counts = shares.sum(0)
    able = ((counts >= least * len(shares)) & (counts >= size)).nonzero()[:, 0]
    conditions = able[torch.randperm(len(able))[:planted]]
    keys = torch.rand(len(conditions), len(shares)).masked_fill_(~shares.T[conditions], 2.0)
    return torch.cat([rows, keys.topk(size, dim=1, largest=False).indices.flatten()]).unique(), conditions


def odd_sets(
    store: Tensor,
    shares: Tensor,
    lacks: Tensor,
    count: int,
    odd: tuple[int, int] = (1, 1),
    size: int = 16,
    favoured: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Batch, Tensor]:
    """Draw sets of `size` elements of a store, (U, ...), and the condition (B,) that the members of each share.

    >>> digit = torch.arange(40) % 2 == torch.tensor([[0], [1]])
    >>> batch, condition = odd_sets(torch.zeros(40, 8, 8), digit.T, ~digit.T, 100)
    >>> batch.sets, batch.y.sum(1).unique(), condition.unique()
    (Sets(100 sets, 1600 elements of shape (8, 8), sizes 16..16, 40 distinct, float32), tensor([1.]), tensor([0, 1]))

    Of the conditions that enough elements share, (U, C), and enough lack, (U, C), each is as probable as another; half
    of the sets have one of the `favoured` conditions, where some are given. All members of a set are different;
    `odd[0]` to `odd[1]` of them lack the condition: 1 in `y`, (B, size), in a random place.
    """
    able = ((shares.sum(0) >= size - odd[0]) & (lacks.sum(0) >= odd[1])).nonzero()[:, 0]
    if not len(able):
        raise ValueError(
            f"no condition is shared by {size - odd[0]} of these {len(store)} elements and lacking in {odd[1]}: "
            f"at most {int(shares.sum(0).max())} share one. Draw from more elements."
        )
    condition = able[torch.randint(len(able), (count,), generator=generator)]
    if favoured is not None and len(favoured := favoured[torch.isin(favoured, able)]):
        condition[: count // 2] = favoured[torch.randint(len(favoured), (count // 2,), generator=generator)]

    def some(of: Tensor, number: int) -> Tensor:
        """(B, number) different elements of those that are True for the condition of a set."""
        keys = torch.rand(count, len(store), generator=generator).masked_fill_(~of.T[condition], 2.0)
        return keys.topk(number, dim=1, largest=False).indices

    numbers = torch.randint(odd[0], odd[1] + 1, (count, 1), generator=generator)
    marks = torch.arange(size) < numbers
    index = some(shares, size - odd[0])
    index = torch.cat([index.new_zeros(count, odd[0]), index], dim=1)
    index[:, : odd[1]] = torch.where(marks[:, : odd[1]], some(lacks, odd[1]), index[:, : odd[1]])
    order = torch.rand(count, size, generator=generator).argsort(1)
    sets = Sets(store, torch.arange(count + 1) * size, index.gather(1, order).flatten())
    return Batch(sets, marks.gather(1, order).float()), condition


def moved(images: Tensor, still: bool = False, side: int | None = None) -> Tensor:
    """Bytes (U, C, H, W) to floats about 0. Faces are mirrored, turned, scaled, shifted and recoloured at random.

    >>> moved(torch.zeros(5, 3, 48, 48, dtype=torch.uint8), side=32).shape
    torch.Size([5, 3, 32, 32])

    Images with one channel are digits: these are deformed. still: nothing is random. side: of the faces that come out.
    """
    x = (images.float() / 255).contiguous(memory_format=torch.channels_last)
    if images.shape[1] == 1:
        return x if still else deform(x[:, 0], 0.4)[:, None]
    x = (x - 0.45) * 4
    if still:
        return x

    def up_to(most: float, *shape: int) -> Tensor:
        return (torch.rand(len(x), *shape) * 2 - 1) * most

    mirror, angle, scale = torch.where(torch.rand(len(x)) < 0.5, -1.0, 1.0), up_to(0.15), 1 + up_to(0.1)
    cos, sin = scale * angle.cos(), scale * angle.sin()
    affine = torch.stack([mirror * cos, -sin, up_to(0.12), mirror * sin, cos, up_to(0.12)], dim=1).view(-1, 2, 3)
    grid = F.affine_grid(affine, [*x.shape[:2], side or x.shape[2], side or x.shape[3]], align_corners=False)
    x = F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
    x = x * (1 + up_to(0.3, 1, 1, 1)) + up_to(0.3, 3, 1, 1)
    return x.contiguous(memory_format=torch.channels_last)
