"""Elements that are near in a space of vectors (w2v-Near of section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..sets import Sets
from .base import Expander, Query
from .input import as_dense, read_items


class NearestVectors(Expander):
    r"""Scores by direction, with vectors that are given:  $s(x|X) = \cos(v_x, Σ_m v_{x_m})$.

    >>> vectors = {"red": [1.0, 0.1], "green": [0.9, 0.2], "lion": [0.1, 1.0], "puma": [0.1, 0.8]}
    >>> NearestVectors(vectors, components=0).fit().expand(["red"], k=1)[0].element
    'green'

    vectors: a dict from element to vector, or a pair (elements, matrix (n, D)); without it the features of the items.
    center:  takes away the mean of the vectors of the vocabulary.
    components: takes away so many first principal directions: in vectors of words they tell frequency, not meaning.
    normalize: brings every vector to length 1 before those of the query are added.

    Elements without a vector add nothing to a query and are scored last (-inf), in the order of the vocabulary. For a
    query of such elements alone all others score 0.
    """

    _needs_sets = False
    _not_saved = ("vectors",)

    def __init__(
        self, vectors: Any = None, *, center: bool = True, components: int = 2, normalize: bool = True
    ) -> None:
        self.vectors = vectors
        self.center = center
        self.components = components
        self.normalize = normalize

    def _default_vocabulary(self) -> list[Any]:
        return [] if self.vectors is None else read_vectors(self.vectors)[0]

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: tuple[Sets, np.ndarray | None] | None) -> None:
        if self.vectors is not None:
            table, known = vectors_of(self.vocabulary_, self.vectors)
        elif self.features_ is not None:
            table, known = as_dense(self.features_), np.ones(len(self.vocabulary_), dtype=bool)
        else:
            raise ValueError("NearestVectors needs vectors: NearestVectors(vectors=…), or items with features.")
        if not known.any():
            raise ValueError("none of the elements of the vocabulary has a vector.")
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
        return self._score_rows(list(queries), np.arange(len(self.vocabulary_)), z)

    def _pick(self, queries: list[np.ndarray], ids: np.ndarray, z: np.ndarray | None) -> np.ndarray:
        return self._score_rows(list(queries), ids, z)

    def _score_rows(self, queries: list[Query], candidates: Query, z: np.ndarray | None) -> np.ndarray:
        sums = np.stack([self._vectors(query).sum(0) for query in queries])
        everything = candidates.ndim == 1 and len(candidates) == len(self.table_)
        rows = self.table_ if everything else self._vectors(candidates)
        out = _unit(sums) @ rows.T
        if not self.normalize:
            out /= np.maximum(np.linalg.norm(rows, axis=1), np.finfo(rows.dtype).tiny)
        if candidates.ndim == 1:
            out[:, ~self.known_[candidates]] = -np.inf
        return out

    def _vectors(self, members: Query) -> np.ndarray:
        return self.table_[members] if members.ndim == 1 else self._prepare(as_dense(members))

    def _prepare(self, rows: np.ndarray) -> np.ndarray:
        rows = rows - self.mean_
        rows = rows - (rows @ self.directions_) @ self.directions_.T
        return _unit(rows) if self.normalize else rows


def read_vectors(vectors: Any) -> tuple[list[Any], np.ndarray]:
    """A dict or a pair, to elements and a dense matrix."""
    if not isinstance(vectors, Mapping) and not (isinstance(vectors, tuple) and len(vectors) == 2):
        raise ValueError(
            f"vectors are a dict from element to vector or a pair (elements, matrix); found {type(vectors).__name__}."
        )
    names, matrix = read_items(vectors)
    if names is None or matrix is None:
        raise ValueError("vectors: the second of the pair must be a matrix (elements, D).")
    return names, as_dense(matrix)


def vectors_of(vocabulary: list[Any], vectors: Any) -> tuple[np.ndarray, np.ndarray]:
    """(V, D) the vector of each element, 0 where it has none, and (V,) which of them have one."""
    names, matrix = read_vectors(vectors)
    place = {name: i for i, name in enumerate(names)}
    rows = np.array([place.get(element, -1) for element in vocabulary])
    return np.where(rows[:, None] >= 0, matrix[rows], 0).astype(matrix.dtype), rows >= 0


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(rows.dtype).tiny)
