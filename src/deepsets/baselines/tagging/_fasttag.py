"""FastTag (Chen, Zheng and Weinberger 2013): two linear maps that agree on the complete tags of an image."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from ._scaling import Scaling


class FastTag:
    r"""Completes the tags of an image (yB) and predicts the completed tags from its features (xW), in closed form:

    $$\min_{B, W} \tfrac1n \sum_i \|y_i B − x_i W\|^2 + λ\|W\|^2 + γ\, \tfrac1n \sum_i E\|y_i − ỹ_i B\|^2$$

    where ỹ has lost each tag with probability `corruption`; the expectation over all losses is exact:
    $E[ỹ^⊤ỹ] = (1−p)^2 S + p(1−p)\,\mathrm{diag}(S)$ and $E[ỹ^⊤y] = (1−p) S$ with $S = Y^⊤Y/n$.

    >>> rng = np.random.default_rng(0)
    >>> features = rng.normal(size=(50, 3)); tags = (features @ rng.normal(size=(3, 4)) > 0).astype(float)
    >>> FastTag().fit(features, tags).scores(features).shape
    (50, 4)

    Features are taken in units of their deviation, without a constant. B and W are solved for in turn, from B that
    best undoes the losses. `layers` > 1 repeats the whole on the tags that the layer before completed, so that tags
    which never meet but share company find each other.
    """

    def __init__(
        self, corruption: float = 0.3, agreement: float = 1.0, penalty: float = 0.1, layers: int = 1, steps: int = 10
    ) -> None:
        self.corruption, self.agreement, self.penalty = corruption, agreement, penalty
        self.layers, self.steps = layers, steps

    def fit(self, features: np.ndarray, tags: np.ndarray) -> FastTag:
        """Features (n, d), tags (n, t) of 0 and 1."""
        self.scaling = Scaling(features)
        count, x, y = len(features), self.scaling(features), tags.astype(float)
        square = x.T @ x / count + self.penalty * np.eye(x.shape[1])
        factor = linalg.cho_factor(square)
        self.completions: list[np.ndarray] = []
        for _ in range(self.layers):
            together = y.T @ y / count
            keep = 1 - self.corruption
            lost = keep**2 * together + keep * self.corruption * np.diag(np.diag(together))  # E ỹᵀỹ
            cross = keep * together  # E ỹᵀy
            ridge = 1e-9 * np.eye(len(lost))
            complete = linalg.solve(lost + ridge, cross, assume_a="pos")
            left = linalg.cho_factor(self.agreement * lost + together + ridge)
            met = x.T @ y / count
            from_tags = linalg.cho_solve(factor, met)  # W = (this) B
            seen = met.T @ from_tags  # what yᵀ(xW)/n is before B
            for _ in range(self.steps):
                complete = linalg.cho_solve(left, self.agreement * cross + seen @ complete)
            self.weights = from_tags @ complete
            self.completions.append(complete)
            y = y @ complete
        return self

    def scores(self, features: np.ndarray) -> np.ndarray:
        """How well every tag fits, (n, t)."""
        return self.scaling(features) @ self.weights
