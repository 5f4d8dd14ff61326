"""Expansion by vectors: cosine similarity, and vectors derived from sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..sets import Sets
from .base import BaseExpander, Members, Validation
from .cooccurrence import membership
from .vocabulary import as_dense, read_items


class NearestVectors(BaseExpander):
    r"""Cosine similarity to the sum of the query's vectors (w2v-Near of section 4.2).

    :math:`s(x|X) = \cos(v_x, Σ_m v_{x_m})`, with vectors of length 1. Elements without a vector add nothing to a query
    and are scored last (-inf), in the order of the vocabulary. For a query of such elements alone all others score 0.

    Parameters
    ----------
    vectors : dict or pair, optional
        A dict from element to vector, or a pair (elements, matrix (n, D)); by default the features of the items.
    center : bool, default=True
        Subtract the mean of the vectors of the vocabulary.
    components : int, default=2
        Number of first principal directions to remove: in word vectors they express frequency, not meaning.

    Examples
    --------
    >>> vectors = {"red": [1.0, 0.1], "green": [0.9, 0.2], "lion": [0.1, 1.0], "puma": [0.1, 0.8]}
    >>> NearestVectors(vectors, components=0).fit().expand(["red"], k=1)[0].element
    'green'

    """

    _needs_sets = False
    not_saved = ("vectors",)

    def __init__(self, vectors: Any = None, *, center: bool = True, components: int = 2) -> None:
        self.vectors = vectors
        self.center = center
        self.components = components

    def _default_vocabulary(self) -> list[Any]:
        return [] if self.vectors is None else read_vectors(self.vectors)[0]

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: Validation) -> None:
        if self.vectors is not None:
            table, known = vectors_of(self.vocabulary_, self.vectors)
        elif self.features_ is not None:
            table, known = as_dense(self.features_), np.ones(len(self.vocabulary_), dtype=bool)
        else:
            raise ValueError("NearestVectors needs vectors: NearestVectors(vectors=…), or items with features.")
        if not known.any():
            raise ValueError("no element of the vocabulary has a vector.")
        self.features_, self.n_features_in_ = None, table.shape[1]
        if not 0 <= self.components < table.shape[1]:
            raise ValueError(f"components must be 0 to {table.shape[1] - 1}, found {self.components}.")
        self.mean_ = table[known].mean(0) if self.center else np.zeros(table.shape[1], table.dtype)
        centred = table[known] - self.mean_
        _, directions = np.linalg.eigh(centred.T @ centred)  # by rising variance
        self.directions_ = directions[:, table.shape[1] - self.components :]  # (D, components)
        self.known_ = known
        self.table_ = np.where(known[:, None], self._prepare(table), 0)

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        return self._score_table(list(queries), self.table_, self.known_)

    def _score_some(self, queries: list[Members], candidates: Members, z: np.ndarray | None) -> np.ndarray:
        known = self.known_[candidates] if candidates.ndim == 1 else np.ones(candidates.shape[0], dtype=bool)
        return self._score_table(queries, self._vectors(candidates), known)

    def _score_table(self, queries: list[Members], rows: np.ndarray, known: np.ndarray) -> np.ndarray:
        out = unit(np.stack([self._vectors(query).sum(0) for query in queries])) @ rows.T
        out[:, ~known] = -np.inf
        return out

    def _vectors(self, members: Members) -> np.ndarray:
        return self.table_[members] if members.ndim == 1 else self._prepare(as_dense(members))

    def _prepare(self, rows: np.ndarray) -> np.ndarray:
        rows = rows - self.mean_
        return unit(rows - (rows @ self.directions_) @ self.directions_.T)


def read_vectors(vectors: Any) -> tuple[list[Any], np.ndarray]:
    """Read vectors, given as a dict or a pair, as elements and a dense matrix."""
    if not isinstance(vectors, Mapping) and not (isinstance(vectors, tuple) and len(vectors) == 2):
        raise ValueError(
            f"vectors are a dict from element to vector or a pair (elements, matrix); found {type(vectors).__name__}."
        )
    names, matrix = read_items(vectors)
    if names is None or matrix is None:
        raise ValueError("vectors: the second of the pair must be a matrix (elements, D).")
    return names, as_dense(matrix)


def vectors_of(vocabulary: list[Any], vectors: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the vector of each element (V, D), 0 where it has none, and which of them have one (V,)."""
    names, matrix = read_vectors(vectors)
    place = {name: i for i, name in enumerate(names)}
    rows = np.array([place.get(element, -1) for element in vocabulary])
    return np.where(rows[:, None] >= 0, matrix[rows], 0).astype(matrix.dtype), rows >= 0


def set_vectors(sets: Sets, count: int, width: int = 300) -> np.ndarray:
    r"""Derive vectors of elements from the sets they are in.

    Elements that are in the same sets, or in sets that share others, are near to each other: the truncated SVD
    :math:`U\sqrt{S}` of the membership table, each column divided by the square root of the size of its set. Signs and
    last digits may differ between machines.

    Parameters
    ----------
    sets : Sets
        Sets of ids.
    count, width : int
        Number of elements, and length of a vector.

    Returns
    -------
    ndarray of shape (count, width)
        Vectors of length 1, or 0 for elements without sets.

    Examples
    --------
    >>> import torch
    >>> sets = Sets(torch.tensor([0, 1, 1, 2, 3, 4]), torch.tensor([0, 2, 4, 6]))  # {0, 1}, {1, 2}, {3, 4}
    >>> vectors = set_vectors(sets, 5, width=2)
    >>> bool(vectors[0] @ vectors[2] > 0.9), bool(abs(vectors[0] @ vectors[3]) < 0.1)
    (True, True)

    """
    from sklearn.utils.extmath import randomized_svd

    table = membership(sets, count)
    sizes = np.maximum(sets.sizes.numpy(), 1)
    weighted = sp.csr_array(table * (sizes**-0.5).astype(np.float32)[None, :])
    left, values, _ = randomized_svd(weighted, min(width, *weighted.shape), random_state=0)
    return unit((left * np.sqrt(values)).astype(np.float32))


def unit(rows: np.ndarray) -> np.ndarray:
    """Scale rows to length 1; rows of 0 stay."""
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), np.finfo(np.float32).tiny)
