"""MNIST: 60,000 + 10,000 images of handwritten digits (LeCun, Cortes and Burges)."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from .folder import data_file

SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/ (a copy of http://yann.lecun.com/exdb/mnist/)"
_PREFIX = {"train": "train", "test": "t10k"}
_BYTES = 8  # the code for unsigned bytes, the only type that these files use


def mnist(part: Literal["train", "test"]) -> tuple[Tensor, Tensor]:
    """Images, (N, 28, 28) bytes, and their digits, (N,) integers.

    >>> images, digits = mnist("test")  # doctest: +SKIP
    >>> images.shape, digits[:4].tolist()  # doctest: +SKIP
    (torch.Size([10000, 28, 28]), [7, 2, 1, 0])
    """
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
