"""Vectors of elements from nothing but the sets in which they stand."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.utils.extmath import randomized_svd

from ...sets import Sets
from ..bayesian import membership


def set_vectors(sets: Sets, count: int, width: int = 300) -> np.ndarray:
    r"""(count, width) unit vectors: elements that stand in the same sets, or in sets that share others, are near.

    >>> import torch
    >>> sets = Sets(torch.tensor([0, 1, 1, 2, 3, 4]), torch.tensor([0, 2, 4, 6]))  # {0, 1}, {1, 2}, {3, 4}
    >>> vectors = set_vectors(sets, 5, width=2)
    >>> bool(vectors[0] @ vectors[2] > 0.9), bool(abs(vectors[0] @ vectors[3]) < 0.1)
    (True, True)

    The truncated SVD $U\sqrt{S}$ of the table of memberships, each column divided by the root of its set's size. The
    signs and the last digits may differ from machine to machine.
    """
    table = membership(sets, count)
    sizes = np.maximum(sets.sizes.numpy(), 1)
    weighted = sp.csr_array(table * (sizes**-0.5).astype(np.float32)[None, :])
    left, values, _ = randomized_svd(weighted, min(width, *weighted.shape), random_state=0)
    vectors = (left * np.sqrt(values)).astype(np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
