"""Distances of distributions by mean embeddings, and the kernel regression on them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from ..nn import pooling
from ..sets import Sets


def mean_kernel(a: Sets, b: Sets, bandwidth: float) -> np.ndarray:
    """(A, B): the mean of the Gaussian kernel over all pairs of members, a block of pairs of sets at a time."""
    mean, out = pooling("mean"), np.empty((len(a), len(b)))
    for rows in torch.arange(len(a)).split(8):
        first = a[rows]
        for columns in torch.arange(len(b)).split(8):
            second = b[columns]
            pairs = torch.cdist(first.values, second.values).square_().mul_(-0.5 / bandwidth**2).exp_()
            half = mean(first.with_values(pairs))  # (8, members of second)
            out[np.ix_(rows, columns)] = mean(second.with_values(half.T.contiguous())).T.numpy()
    return out


def singly(sets: Sets) -> Iterator[Sets]:
    """Each set as a batch of its own."""
    return (sets[[i]] for i in range(len(sets)))


def squared_distances(inner: np.ndarray, own_a: np.ndarray, own_b: np.ndarray) -> np.ndarray:
    """Squared distances from inner products and squared lengths."""
    return np.maximum(own_a[:, None] + own_b - 2 * inner, 0)


def median_distance(squared: np.ndarray) -> float:
    """The median of at most 512 x 512 squared distances; 1 where all are 0."""
    return float(np.median(squared[:512, :512][~np.eye(len(squared[:512]), dtype=bool)])) or 1.0


def outer_kernel(squared: np.ndarray, width: float, unit: float) -> np.ndarray:
    """Gaussian kernel of squared distances."""
    return np.exp(squared * (-0.5 / (width**2 * unit)))


def solve(kernel: np.ndarray, y: np.ndarray, ridge: float) -> np.ndarray:
    """Dual weights of ridge regression."""
    matrix = kernel.copy()
    matrix[np.diag_indices_from(matrix)] += ridge
    try:
        return cho_solve(cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False), y, check_finite=False)
    except LinAlgError:  # equal sets, and a ridge below rounding: as if the kernel said nothing
        return np.zeros_like(y)


def neighbours(ridges: tuple[float, ...], best: float) -> list[float]:
    """The best ridge and those beside it."""
    place = sorted(ridges).index(best)
    return sorted(ridges)[max(place - 1, 0) : place + 2]
