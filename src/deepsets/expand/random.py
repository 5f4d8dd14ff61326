"""Chance, to compare with."""

from __future__ import annotations

import hashlib

import numpy as np

from ..sets import Sets
from .base import Expander


class RandomExpander(Expander):
    """Scores that have nothing to do with the query, the same for the same query.

    >>> expander = RandomExpander(random_state=0).fit([["oak", "elm"], ["lion", "puma"]])
    >>> len(expander.expand(["oak"], k=2))
    2
    """

    _needs_sets = False

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: tuple[Sets, np.ndarray | None] | None) -> None:
        pass

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        out = np.empty((len(queries), len(self.vocabulary_)))
        for row, ids in zip(out, queries, strict=True):
            code = hashlib.blake2b(ids.tobytes(), digest_size=8).digest()
            np.random.default_rng([self.random_state, int.from_bytes(code, "little")]).random(out=row)
        return out
