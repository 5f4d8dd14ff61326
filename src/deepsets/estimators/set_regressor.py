"""One or more values for each set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin, TransformerMixin
from sklearn.metrics import r2_score

from .blend import conformal_radius
from .layout import Members
from .parameters import SET_PARAMETERS, documented
from .scale import Unscale
from .set_estimator import ModelName, SetEstimator
from .state import under
from .targets import as_numbers, check_outputs, check_values, one_per_set
from .task import Task


@documented(SET_PARAMETERS.replace("{class_weight}", ""))
class SetRegressor(TransformerMixin, RegressorMixin, SetEstimator):
    """One or more values for each set.

    {parameters}

    Attributes
    ----------
    head_weights_ : dict
        Share of each head in the blend.
    head_losses_ : dict
        Held-out mean squared error of each head and of the blend, in units of the target's variance.
    mergeable_ : bool
        Whether `encode` gives states that merge.
    feature_names_in_, n_features_in_, n_sets_, n_members_, vocabulary_, target_names_

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

    def __init__(
        self,
        *,
        model: ModelName = "auto",
        width: int | None = None,
        depth: int | None = None,
        dropout: float | None = None,
        n_estimators: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.01,
        early_stopping: bool | None = None,
        patience: int | None = None,
        pool: str | list[str] | None = None,
        subset: int | None = None,
        warm_start: bool = False,
        by: str | list[str] | None = None,
        columns: list[str] | None = None,
        checkpoint_dir: str | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        on_epoch: Callable[[dict[str, Any]], None] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.width = width
        self.depth = depth
        self.dropout = dropout
        self.n_estimators = n_estimators
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.patience = patience
        self.pool = pool
        self.subset = subset
        self.warm_start = warm_start
        self.by = by
        self.columns = columns
        self.checkpoint_dir = checkpoint_dir
        self.device = device
        self.n_jobs = n_jobs
        self.on_epoch = on_epoch
        self.random_state = random_state
        self.verbose = verbose

    def predict(self, X: Any, *, z: Any = None) -> np.ndarray:
        """Predict values, (sets,) or (sets, targets)."""
        return self._final(self._answers(*self._read(X, z)))

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
        answers = self._answers(*self._read(X, z))
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
