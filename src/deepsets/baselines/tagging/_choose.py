"""Choosing settings of a tagger by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from ...metrics import tag_scores


class Tagger(Protocol):
    """What every tagger does: features (n, d) and tags (n, t) in, scores (n, t) out."""

    def fit(self, features: np.ndarray, tags: np.ndarray) -> Any:
        """Learns from tagged images; returns itself."""

    def scores(self, features: np.ndarray) -> np.ndarray:
        """How well every tag fits every image."""


T = TypeVar("T", bound=Tagger)


def choose(
    candidates: Sequence[T],
    features: np.ndarray,
    tags: np.ndarray,
    *,
    folds: int = 3,
    per_image: int = 5,
    seed: int = 0,
) -> T:
    """The candidate with the best F1 on images held out, averaged over folds, fitted on all images.

    >>> from deepsets.baselines.tagging import LeastSquares
    >>> rng = np.random.default_rng(0)
    >>> features = rng.normal(size=(60, 4)); tags = (features[:, :3] > 0).astype(int)
    >>> choose([LeastSquares(1e9), LeastSquares(0.01)], features, tags, per_image=2).penalty
    0.01
    """
    if not candidates:
        raise ValueError("there are no candidates to choose from.")
    fold = np.random.default_rng(seed).permutation(len(features)) % folds
    found = np.zeros(len(candidates))
    for held in range(folds):
        rest = fold != held
        for number, tagger in enumerate(candidates):
            scores = tagger.fit(features[rest], tags[rest]).scores(features[~rest])
            found[number] += tag_scores(scores, tags[~rest], per_image).f1
    best: T = candidates[int(found.argmax())]
    best.fit(features, tags)
    return best
