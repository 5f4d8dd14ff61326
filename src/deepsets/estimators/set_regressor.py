"""One or more values for each set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from .blend import conformal_radius
from .layout import Members
from .parameters import SET_PARAMETERS, documented
from .scale import Unscale
from .set_estimator import SetEstimator
from .state import under
from .targets import as_numbers, check_outputs, check_values, one_per_set
from .task import Task


@documented(SET_PARAMETERS)
@dataclass(kw_only=True, eq=False, repr=False)
class SetRegressor(RegressorMixin, SetEstimator):
    """One or more values for each set.

    {parameters}

    Attributes
    ----------
    head_weights_ : dict
        Share of each head in the blend.
    head_losses_ : dict
        Held-out mean squared error of each head and of the blend, in units of the target's variance.
    mergeable_, feature_names_in_, n_features_in_, n_sets_, n_members_, vocabulary_, target_names_
        As for :class:`SetClassifier`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(rng.integers(2, 9), 3)) for _ in range(60)]
    >>> y = [x.max() for x in X]
    >>> model = SetRegressor(random_state=0).fit(X, y)
    >>> model.predict(X[:2]).shape
    (2,)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    def predict(self, X: Any, *, z: Any = None) -> np.ndarray:
        """Predict values, (sets,) or (sets, targets)."""
        return self._final(self._answers(*self._read(X, z)[:2]))

    def predict_interval(self, X: Any, *, z: Any = None, coverage: float = 0.9) -> np.ndarray:
        """Predict intervals that contain the target of a new set with about the given probability.

        Conformal intervals from the out-of-fold errors of the training sets: all have the same width.

        Parameters
        ----------
        X, z
            As in `fit`.
        coverage : float, default=0.9

        Returns
        -------
        ndarray of shape (sets, 2) or (sets, targets, 2)
            Lower and upper ends.

        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must be between 0 and 1, found {coverage!r}.")
        answers = self._answers(*self._read(X, z)[:2])
        if len(self.residuals_) == 0:
            raise ValueError("there are no out-of-fold errors to take intervals from: call fit, not partial_fit.")
        radius = conformal_radius(self.residuals_, coverage)
        return np.stack([self._final(answers - radius), self._final(answers + radius)], axis=-1)

    def _kind(self) -> Any:
        return "regression"

    def _final(self, answers: np.ndarray) -> np.ndarray:
        out = self.unscale_(torch.from_numpy(answers)).numpy()
        return out[:, 0] if self.flat_ else out

    def _task(self, y: Any, members: Members, *, first: bool) -> Task:
        values = as_numbers(one_per_set(y, members, "target"), "set")
        if first:
            check_values(values, "set")
            self.flat_ = values.ndim == 1
            self.unscale_ = Unscale(values.reshape(len(values), -1).shape[1])
            self.unscale_.learn(torch.from_numpy(values.reshape(len(values), -1)))
        values = values.reshape(len(values), -1)
        check_outputs(values.shape[1], len(self.unscale_.mean))
        scaled = (values - self.unscale_.mean.numpy()) / self.unscale_.deviation.numpy()
        return Task("regression", scaled, values.shape[1])

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, z: Any = None) -> float:
        """R² of the predicted values; the mean over several targets."""
        return self._score_sets(X, y, sample_weight, z)

    def _score(self, answers: np.ndarray, y: Any, members: Members, weight: Any) -> float:
        wanted = as_numbers(one_per_set(y, members, "target"), "set")
        return float(r2_score(wanted, self._final(answers), sample_weight=weight))

    def _add_state(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        super()._add_state(tensors, facts)
        tensors["unscale.mean"], tensors["unscale.deviation"] = self.unscale_.mean, self.unscale_.deviation

    def _restore(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        super()._restore(tensors, facts)
        parts = under(tensors, "unscale")
        self.unscale_ = Unscale(self.heads_.outputs)
        self.unscale_.load_state_dict(parts)
        if not all(bool(t.isfinite().all()) for t in parts.values()):
            raise ValueError("the scale of the target is not finite.")
        if type(self.flat_) is not bool:
            raise ValueError("the state lacks 'flat_'.")
