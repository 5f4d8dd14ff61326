"""Metrics of the experiments: exact sums, red-shift scatter, precision and recall of tags."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor


def exact_sums(answer: Tensor, truth: Tensor) -> float:
    """The share of answers that, rounded, are the true integer: (B,) each.

    >>> import torch
    >>> exact_sums(torch.tensor([11.6, 7.2, 3.0, 8.6]), torch.tensor([12, 7, 3, 8]))
    0.75
    """
    if answer.shape != truth.shape or answer.ndim != 1:
        raise ValueError(
            f"one answer and one sum for each set are wanted, found shapes {tuple(answer.shape)} and "
            f"{tuple(truth.shape)}."
        )
    return float((answer.round() == truth).double().mean())


def scatter(z: np.ndarray, found: np.ndarray) -> float:
    r"""$\mathrm{mean}\; |z - \hat z| / (1 + z)$, as cosmology has it.

    >>> scatter(np.array([0.0, 1.0]), np.array([0.1, 1.0]))
    0.05
    """
    return float(np.mean(np.abs(z - found) / (1 + z)))


class TagScores(NamedTuple):
    """Means over tags; `n_plus` is the number of tags found at least once where they belong."""

    precision: float
    recall: float
    f1: float
    n_plus: int


def tag_scores(scores: np.ndarray, tags: np.ndarray, per_image: int = 5) -> TagScores:
    """Every image gets its `per_image` best tags; precision and recall are taken tag by tag, then averaged.

    >>> tags = np.array([[1, 1, 0], [1, 0, 0]])
    >>> tag_scores(np.array([[0.9, 0.8, 0.1], [0.2, 0.3, 0.1]]), tags, per_image=1)
    TagScores(precision=0.5, recall=0.25, f1=0.333..., n_plus=1)

    scores (n, t), tags (n, t) of 0 and 1. Tags that no image has do not count; a tag that is never given to an image
    has precision 0. F1 is that of the two means, as in the literature on these data.
    """
    scores, truth = np.asarray(scores), np.asarray(tags) > 0
    if scores.shape != truth.shape or scores.ndim != 2:
        raise ValueError(f"scores and tags must both be (images, tags); found {scores.shape} and {truth.shape}.")
    if not 1 <= per_image <= scores.shape[1]:
        raise ValueError(f"per_image must be between 1 and the {scores.shape[1]} tags, found {per_image}.")
    given = np.zeros_like(truth)
    np.put_along_axis(given, top_tags(scores, per_image), True, axis=1)
    used = truth.any(0)
    right = (given & truth).sum(0)[used]
    precision = float((right / np.maximum(given.sum(0)[used], 1)).mean())
    recall = float((right / truth.sum(0)[used]).mean())
    f1 = 2 * precision * recall / max(precision + recall, 1e-12)
    return TagScores(precision, recall, f1, int((right > 0).sum()))


def top_tags(scores: np.ndarray, per_image: int = 5) -> np.ndarray:
    """The numbers of the best tags, best first, (n, per_image); of equal scores the lower number first.

    >>> top_tags(np.array([[0.1, 0.7, 0.7]]), 2)
    array([[1, 2]])
    """
    return np.argsort(-np.asarray(scores), axis=1, kind="stable")[:, :per_image]
