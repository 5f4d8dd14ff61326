"""Features of a candidate word for a query: similar vectors, common concepts, frequency."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..evidence import unit
from .data import WordData

NEIGHBOURS = 20
PRESELECTED = 1000  # words that the learned weights rank; the others follow in the order of `quick_scores`
FEATURES = (
    "cosine",
    "cosine, where no concept holds the members",
    "cosine to the query and its neighbours",
    "lowest cosines",
    "concepts of the members",
    "largest share of members in a concept",
    "concepts near the query",
    "in concepts as the members",
    "log frequency rank",
    "rarer than the query",
    "is a phrase",
    "is a phrase, unlike the members",
)


def quick_scores(features: np.ndarray) -> np.ndarray:
    """Score words for the preselection.

    Parameters
    ----------
    features : ndarray of shape (V, F)
        As computed by `WordEvidence`.

    Returns
    -------
    ndarray of shape (V,)

    """
    return 8 * features[:, 0] + 0.3 * (features[:, 4] + features[:, 6])


class WordEvidence:
    """Compute the features of all words for a query.

    Parameters
    ----------
    data : WordData
        Words, vectors and concepts.

    """

    def __init__(self, data: WordData) -> None:
        self.data = data
        self.of = sp.csr_array(data.members.T)  # (V, T)
        sizes = np.diff(data.members.indptr)
        self.set_weight = (1 / np.sqrt(np.maximum(sizes, 1))).astype(np.float32)
        self.centres = unit(np.asarray(data.members @ data.vectors)).astype(np.float32)
        self.rank = np.log(np.arange(len(data.words)) + 30).astype(np.float32)
        self.in_concept = (np.diff(self.of.indptr) > 0).astype(np.float32)
        self.phrase = np.array([" " in word for word in data.words], dtype=np.float32)

    def __call__(self, query: np.ndarray, without: np.ndarray | None = None) -> np.ndarray:
        """Compute the features.

        Parameters
        ----------
        query : ndarray of int
            Ids of the members, ascending.
        without : ndarray of int, optional
            Concepts to leave out.

        Returns
        -------
        ndarray of shape (V, F)

        """
        table, n = self.data.vectors, len(query)
        direction = unit(table[query].sum(0))
        products = table @ np.column_stack([direction, table[query].T])  # (V, 1 + n)
        cosine = products[:, 0]
        lowest = np.sort(products[:, 1:], 1)[:, : max(1, n // 2)].mean(1) if n > 1 else cosine
        nearest = np.argpartition(-cosine, NEIGHBOURS)[:NEIGHBOURS]
        wider = table @ unit(direction + 0.5 * unit(table[nearest].sum(0)))
        held = np.bincount(self.of[query].indices, minlength=len(self.centres)).astype(np.float32)
        near = self.centres @ direction
        if without is not None:
            held[without], near[without] = 0, -1
        # A concept that holds one member of several speaks for one of its senses, not for what the members share.
        sets = np.flatnonzero(held >= min(n, 2))
        strength = np.zeros(len(held), np.float32)
        strength[sets] = (held[sets] / n) ** 3 * self.set_weight[sets]
        soft = np.exp((near - near.max()) / 0.05)
        common, soft_common = (self.of @ np.column_stack([strength, soft / soft.sum()])).T
        share = np.zeros(len(table), np.float32)
        for t in sets[np.argsort(held[sets], kind="stable")]:
            ids = self.data.members.indices[self.data.members.indptr[t] : self.data.members.indptr[t + 1]]
            share[ids] = held[t] / n
        level = self.rank[query].mean()
        covered, known = share.max(), self.in_concept[query].mean()
        columns = [
            cosine,
            (1 - covered) * cosine,
            wider,
            lowest,
            covered * np.log1p(common / 1e-3),
            covered * share,
            known * np.log1p(soft_common / 1e-4),
            -np.abs(self.in_concept - known),
            self.rank,
            np.maximum(self.rank - level, 0),
            self.phrase,
            np.maximum(self.phrase - self.phrase[query].mean(), 0),
        ]
        return np.stack(columns, 1)
