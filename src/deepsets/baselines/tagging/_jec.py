"""Joint equal contribution (Makadia, Pavlovic and Kumar 2008): tags move over from the nearest images."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy.spatial.distance import cdist


class JEC:
    """The nearest training image gives its tags, most frequent first; the next `neighbours` fill up.

    >>> features, tags = np.array([[0.0], [1], [5]]), np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1]])
    >>> JEC(neighbours=2).fit(features, tags).scores(np.array([[0.2]])).argsort()[0, ::-1].tolist()
    [0, 1, 2]

    The distance is the mean of L1 distances, one for each block of features (`blocks`: their widths; one block by
    default), each divided by the largest of its kind among training images ("joint equal contribution").
    After the tags of the nearest image come those of the others, by (number of neighbours that have the tag) x
    (how often it stands beside the tags of the nearest image in the training data).
    """

    def __init__(self, neighbours: int = 5, blocks: Sequence[int] | None = None) -> None:
        self.neighbours, self.blocks = neighbours, blocks

    def fit(self, features: np.ndarray, tags: np.ndarray) -> JEC:
        """Features (n, d), tags (n, t) of 0 and 1."""
        if self.blocks is not None and sum(self.blocks) != features.shape[1]:
            raise ValueError(
                f"blocks {list(self.blocks)} add up to {sum(self.blocks)}, features have {features.shape[1]}."
            )
        cuts = np.cumsum([0, *(self.blocks or [features.shape[1]])])
        self.slices = [slice(a, b) for a, b in pairwise(cuts)]
        self.features, self.tags = features.astype(float), tags.astype(float)
        some = self.features[:: -(-len(features) // 500)]
        self.longest = [max(cdist(some[:, s], some[:, s], "cityblock").max(), 1e-12) for s in self.slices]
        self.beside = self.tags.T @ self.tags  # (t, t): how many images have both
        return self

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Scores whose order is the order of transfer, (n, t): 1 to 2 for tags of the nearest image, else below 1."""
        x = features.astype(float)
        distance = sum(
            cdist(x[:, s], self.features[:, s], "cityblock") / top
            for s, top in zip(self.slices, self.longest, strict=True)
        )
        near = np.argsort(distance, axis=1, kind="stable")[:, : self.neighbours]
        first = self.tags[near[:, 0]]
        others = self.tags[near[:, 1:]].sum(1) * (first @ self.beside)
        frequency = np.diag(self.beside)
        return np.where(first > 0, 1 + frequency / (frequency.max() + 1), others / (others.max(1, keepdims=True) + 1))
