"""The multiple Bernoulli relevance model (Feng, Manmatha and Lavrenko 2004), one feature vector an image."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp


class MBRM:
    r"""Each training image J is a model of tags and of features:  $p(w|x) ∝ \sum_J p(w|J)\, N(x; x_J, βI)$.

    >>> features, tags = np.array([[0.0], [1.0]]), np.array([[1, 0], [0, 1]])
    >>> MBRM(width=0.1, smoothing=100.0).fit(features, tags).scores(np.array([[0.1]])).round(2)
    array([[0.99, 0.01]])

    A tag is a Bernoulli variable, smoothed by its share N_w / N of all images:
    $p(w|J) = (μ [w ∈ J] + N_w) / (μ + N)$ with μ = `smoothing`. `width` is β in units of the mean squared distance of
    two images: in a thousand dimensions the posterior over J is otherwise a single image.
    """

    def __init__(self, width: float = 0.02, smoothing: float = 1000.0) -> None:
        self.width, self.smoothing = width, smoothing

    def fit(self, features: np.ndarray, tags: np.ndarray) -> MBRM:
        """Features (n, d), tags (n, t) of 0 and 1."""
        self.features, count = features.astype(float), len(features)
        self.tags = (self.smoothing * tags + tags.sum(0)) / (self.smoothing + count)
        self.scale = self.width * max(2 * float(self.features.var(0).sum()), 1e-12)  # E|a − b|² = 2 var
        return self

    def scores(self, features: np.ndarray) -> np.ndarray:
        """p(tag | features), (n, t)."""
        log_density = -cdist(features.astype(float), self.features, "sqeuclidean") / self.scale
        return np.exp(log_density - logsumexp(log_density, axis=1, keepdims=True)) @ self.tags
