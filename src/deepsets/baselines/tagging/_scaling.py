"""Features in units of their deviation."""

from __future__ import annotations

import numpy as np


class Scaling:
    """Takes away the mean of each feature and divides by its deviation, as found in training images.

    >>> Scaling(np.array([[1.0, 5], [3, 5]]))(np.array([[3.0, 5]]))  # a constant feature is 0
    array([[1., 0.]])
    """

    def __init__(self, features: np.ndarray) -> None:
        self.mean, self.deviation = features.mean(0, dtype=float), features.std(0, dtype=float)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        return (features - self.mean) / np.where(self.deviation > 1e-6, self.deviation, 1)
