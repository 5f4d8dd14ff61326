"""Least squares tagging: one ridge regression for each tag, all of them in one solve."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from ._scaling import Scaling


class LeastSquares:
    r"""Linear scores  $s = x W$  with  $\min_W \frac1n \|Y - X W\|^2 + λ\|W\|^2$,  x in units of its deviation.

    >>> features, tags = np.array([[0.0], [1], [2], [3]]), np.array([[0, 1], [0, 1], [1, 0], [1, 0]])
    >>> LeastSquares(penalty=1e-6).fit(features, tags).scores(np.array([[3.0]])).round(3)
    array([[ 0.6, -0.6]])

    features (n, d), tags (n, t) -> scores (n, t). There is no constant: a score says how far a tag is more likely than
    usual, so that frequent tags do not come first everywhere. With `balance` it is divided by this power of the tag's
    deviation in training: at 1 each tag counts in units of its own deviation, which brings rare tags forward.
    """

    def __init__(self, penalty: float = 0.1, balance: float = 0.0) -> None:
        self.penalty, self.balance = penalty, balance

    def fit(self, features: np.ndarray, tags: np.ndarray) -> LeastSquares:
        """Features (n, d), tags (n, t) of 0 and 1."""
        self.scaling = Scaling(features)
        x = self.scaling(features)
        square = x.T @ x / len(x) + self.penalty * np.eye(x.shape[1])
        self.weights = linalg.solve(square, x.T @ tags / len(x), assume_a="pos")
        deviations = tags.std(0)
        self.weights /= np.where(deviations > 0, deviations, 1.0) ** self.balance
        return self

    def scores(self, features: np.ndarray) -> np.ndarray:
        """How well every tag fits, (n, t)."""
        return self.scaling(features) @ self.weights
