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
    usual, so that frequent tags do not come first everywhere.
    """

    def __init__(self, penalty: float = 0.1) -> None:
        self.penalty = penalty

    def fit(self, features: np.ndarray, tags: np.ndarray) -> LeastSquares:
        """Features (n, d), tags (n, t) of 0 and 1."""
        self.scaling = Scaling(features)
        x = self.scaling(features)
        square = x.T @ x / len(x) + self.penalty * np.eye(x.shape[1])
        self.weights = linalg.solve(square, x.T @ tags / len(x), assume_a="pos")
        return self

    def scores(self, features: np.ndarray) -> np.ndarray:
        """How well every tag fits, (n, t)."""
        return self.scaling(features) @ self.weights
