"""Images of digits, MNIST or scikit-learn's, their deformations, and sets of digits (section 4.1.2)."""

import gzip
import math
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from deepsets.sets import Sets

from . import data_file


def draw(store: Tensor, count: int, sizes: tuple[int, int], generator: torch.Generator | None = None) -> Sets:
    """`count` sets of `sizes[0]` to `sizes[1]` members, drawn with replacement from a store of elements, (U, ...).

    >>> sets = draw(torch.zeros(256, 28, 28), 1000, (1, 10))
    >>> len(sets), sets.values.shape[0], sets.sizes.unique().tolist()
    (1000, 256, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])

    The store itself is the values of the batch: phi runs once for each element, in however many sets it stands.
    """
    drawn = torch.randint(sizes[0], sizes[1] + 1, (count,), generator=generator)
    offsets = torch.cat([drawn.new_zeros(1), drawn.cumsum(0)])
    return Sets(store, offsets, torch.randint(len(store), (int(offsets[-1]),), generator=generator))


def sums(sets: Sets, digits: Tensor) -> Tensor:
    """(B,) the sum of the digits of each set; `digits`, (U,), are those of the stored elements.

    >>> sets = Sets(torch.zeros(3, 8, 8), offsets=torch.tensor([0, 1, 3]), element_ids=torch.tensor([2, 0, 2]))
    >>> sums(sets, torch.tensor([4, 5, 9]))
    tensor([ 9, 13])
    """
    index = torch.arange(len(digits)) if sets.element_ids is None else sets.element_ids
    return digits.new_zeros(len(sets)).index_add(0, sets.set_ids, digits[index])


def exact_sums(answer: Tensor, truth: Tensor) -> float:
    """Return the share of answers that, rounded, are the true integer: (B,) each.

    >>> exact_sums(torch.tensor([11.6, 7.2, 3.0, 8.6]), torch.tensor([12, 7, 3, 8]))
    0.75
    """
    if answer.shape != truth.shape or answer.ndim != 1:
        raise ValueError(
            f"expected one answer and one sum per set, found shapes {tuple(answer.shape)} and {tuple(truth.shape)}."
        )
    return float((answer.round() == truth).double().mean())


def small_images(part: Literal["train", "test"]) -> tuple[Tensor, Tensor]:
    """scikit-learn's 1,797 images of digits, every fifth for testing: (N, 8, 8) bytes, and the digits, (N,).

    >>> small_images("test")[0].shape
    torch.Size([359, 8, 8])
    """
    from sklearn.datasets import load_digits

    found = load_digits()
    images, digits = torch.from_numpy(found.images * 255 / 16).byte(), torch.from_numpy(found.target).long()
    test = torch.arange(len(digits)) % 5 == 4
    rows = test if part == "test" else ~test
    return images[rows], digits[rows]


def deform(images: Tensor, amount: float = 1.0, generator: torch.Generator | None = None) -> Tensor:
    """Every image turned, scaled, sheared, shifted and bent at random: (N, H, W) -> (N, H, W), floats.

    At amount 1: turned by up to 9 degrees, each axis scaled by up to 9 %, sheared by up to 0.15, shifted by up to 1.2
    pixels in 28, and moved by a smooth random field with a deviation of 0.6 pixels in 28 (in place of MNIST8m, which
    was made in this manner). All in one resampling.
    """
    count, height, width = images.shape

    def up_to(most: float) -> Tensor:
        return (torch.rand(count, generator=generator) * 2 - 1) * (most * amount)

    angle, shear, wide, high = up_to(math.radians(9)), up_to(0.15), up_to(0.09).exp(), up_to(0.09).exp()
    cos, sin = angle.cos(), angle.sin()
    rows = [cos * wide, shear * cos * wide - sin * high, up_to(1.2 / 14), sin * wide, shear * sin * wide + cos * high]
    affine = torch.stack([*rows, up_to(1.2 / 14)], dim=1).view(count, 2, 3)
    grid = F.affine_grid(affine, [count, 1, height, width], align_corners=False)
    knots = torch.randn(count, 2, _KNOTS, _KNOTS, generator=generator) * (amount * 0.6 / 14)
    bend = _spline(height) @ knots @ _spline(width).T  # (N, 2, H, W)
    grid = grid + bend.permute(0, 2, 3, 1)
    return F.grid_sample(images[:, None], grid, align_corners=False)[:, 0]


_KNOTS = 5  # of the field of movements, along each axis


@cache
def _spline(length: int) -> Tensor:
    """(length, knots): what each knot adds at each place, by cubic interpolation: field = spline @ knots @ splineᵀ."""
    return F.interpolate(torch.eye(_KNOTS)[None, None], size=(length, _KNOTS), mode="bicubic", align_corners=True)[0, 0]


SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/ (a copy of http://yann.lecun.com/exdb/mnist/)"
_PREFIX = {"train": "train", "test": "t10k"}
_BYTES = 8  # the code for unsigned bytes, the only type that these files use


def mnist(part: Literal["train", "test"]) -> tuple[Tensor, Tensor]:
    """Load the images, (N, 28, 28) bytes, and their digits, (N,) integers."""
    if part not in _PREFIX:
        raise ValueError(f"MNIST has the parts 'train' and 'test', found {part!r}.")
    images, digits = (
        read_idx(data_file("mnist", f"{_PREFIX[part]}-{name}-ubyte.gz", SOURCE))
        for name in ("images-idx3", "labels-idx1")
    )
    if len(images) != len(digits):
        raise ValueError(f"the {part} part of MNIST has {len(images)} images but {len(digits)} digits.")
    return images, digits.long()


def read_idx(path: Path) -> Tensor:
    """The array in a gzipped idx file: four bytes of magic (0, 0, type, number of axes), the sizes, the values."""
    raw = gzip.decompress(path.read_bytes())
    if len(raw) < 4 or raw[:3] != bytes([0, 0, _BYTES]):
        raise ValueError(f"{path} is no idx file of bytes: it begins with {list(raw[:4])}, wanted [0, 0, 8, axes].")
    axes = raw[3]
    shape = np.frombuffer(raw, ">u4", axes, offset=4).astype(int).tolist()
    values = np.frombuffer(raw, np.uint8, offset=4 + 4 * axes)
    if len(values) != np.prod(shape):
        raise ValueError(f"{path} says it holds {shape}, {np.prod(shape)} values, but has {len(values)}: cut short?")
    return torch.from_numpy(values.reshape(shape).copy())
