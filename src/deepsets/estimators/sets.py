"""A label or a number for each set."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from torch import Tensor, nn
from torch.nn import functional as F

from ..nn import DeepSet, leave_one_out
from ..sets import Sets, is_missing
from ..train import Batch
from .base import SetEstimator, target_column
from .input import Read
from .network import set_network
from .targets import as_numbers, check_classes, check_outputs, codes, one_per_set, per_member, weighed


class _PerSet(SetEstimator):
    # Numbers are smooth functions of the members and want depth; classes come from few examples and want restraint.
    _DEPTH: int
    _DROPOUT: float
    _DEEP_RHO: bool

    def __init__(
        self,
        *,
        width: int = 128,
        depth: int | None = None,
        dropout: float | None = None,
        n_estimators: int = 1,
        epochs: int | None = None,
        batch_size: int = 16,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.01,
        early_stopping: bool = False,
        validation_fraction: float = 0.15,
        patience: int = 20,
        impute: bool = False,
        warm_start: bool = False,
        by: str | None = None,
        columns: list[str] | None = None,
        checkpoint_dir: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.width = width
        self.depth = depth
        self.dropout = dropout
        self.n_estimators = n_estimators
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.impute = impute
        self.warm_start = warm_start
        self.by = by
        self.columns = columns
        self.checkpoint_dir = checkpoint_dir
        self.random_state = random_state
        self.verbose = verbose

    def _make(self, inputs: int, z: int, outputs: int) -> nn.Module:
        return set_network(
            inputs,
            z,
            outputs,
            width=self.width,
            depth=self._DEPTH if self.depth is None else self.depth,
            dropout=self._DROPOUT if self.dropout is None else self.dropout,
            deep_rho=self._DEEP_RHO,
        )

    def _final(self, answers: Tensor) -> Tensor:
        """The answers of the networks, (networks, n, out), to what the user sees, (n, out)."""
        raise NotImplementedError

    def explain(self, X: Any, z: Any = None) -> Any:
        """What each member contributes: the answer for its set minus the answer without it.

        Gives (members, outputs) for each set in a list; for a table one array in the order of its rows. A positive
        number says that the member pushes the answer (for classifiers: the probability of the class) up. The networks
        see every member once; leaving it out is done in the pooled state.
        """
        given, sets, context = self._ask(X, z)
        with torch.no_grad():
            members, seen = self.network_.prepare(sets, context)
            members = members if self.network_.embed is None else members.map(self.network_.embed)
            networks: list[DeepSet] = list(self.network_.networks)  # type: ignore[arg-type]
            whole = self._final(torch.stack([net(members, seen) for net in networks]))
            without = self._final(torch.stack([leave_one_out(net, members, seen) for net in networks]))
            parts = sets.broadcast(whole) - without
        return per_member(parts.numpy(), given, sets)


class SetRegressor(RegressorMixin, _PerSet):
    """A number (or several) for each set.

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(rng.integers(2, 9), 3)) for _ in range(60)]
    >>> y = [x.max() for x in X]
    >>> SetRegressor(epochs=2, random_state=0).fit(X, y).predict(X[:2]).shape
    (2,)

    y: (sets,) or (sets, targets). The squared error is taken in units of each target's deviation.
    By default phi has 3 layers and there is no dropout.
    """

    _DEPTH, _DROPOUT, _DEEP_RHO = 3, 0.0, True
    _STEPS = 1500

    def predict(self, X: Any, z: Any = None) -> np.ndarray:
        """(sets,) or (sets, targets)."""
        _, sets, context = self._ask(X, z)
        out = self._final(self._answers(sets, context)).numpy()
        return out[:, 0] if self._flat_ else out

    def _targets(self, y: Any, given: Read, *, first: bool) -> Tensor:
        values = as_numbers(one_per_set(y, given, "target"), "set")
        if not np.isfinite(values).all():
            bad = int(np.isfinite(values).reshape(len(values), -1).all(1).argmin())
            raise ValueError(f"the target of set {bad} is not a finite number: {values[bad]}.")
        if first:
            self._flat_ = values.ndim == 1
        values = values.reshape(len(values), -1)
        check_outputs(values.shape[1], getattr(self, "n_outputs_", 0), first=first)
        return torch.from_numpy(values).float()

    def score(self, X: Any, y: Any, z: Any = None, sample_weight: Any = None) -> float:
        """R²; for several targets their mean."""
        given, sets, _ = self._ask(X, z)
        wanted = one_per_set(target_column(X, y), given._replace(sets=sets), "target")
        return float(r2_score(wanted, self.predict(X, z), sample_weight=sample_weight))

    def _outputs(self, y: Tensor | Sets) -> int:
        assert isinstance(y, Tensor)
        constant = (y == y[0]).all(0)
        if bool(constant.any()):
            column = int(constant.nonzero()[0])
            raise ValueError(
                f"the target is constant ({float(y[0, column])} in all {len(y)} sets): nothing can be learnt."
            )
        return y.shape[1]

    def _learn_targets(self, y: Tensor | Sets) -> None:
        assert isinstance(y, Tensor)
        self.network_.unscale.learn(y)

    def _loss(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor | float]:
        errors = (model.answers(batch.sets, batch.z) - model.unscale.scaled(batch.y)).square().mean((0, 2))
        return weighed(errors, batch)

    def _final(self, answers: Tensor) -> Tensor:
        return self.network_.unscale(answers.mean(0))


class SetClassifier(ClassifierMixin, _PerSet):
    """A class for each set.

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(rng.integers(2, 9), 3)) for _ in range(60)]
    >>> y = ["wide" if np.ptp(x) > 3.5 else "narrow" for x in X]
    >>> SetClassifier(epochs=2, random_state=0).fit(X, y).predict_proba(X[:2]).shape
    (2, 2)

    y: (sets,) labels of any kind. `classes_` lists them in the order of the columns of `predict_proba`.
    By default phi has 2 layers and the dropout is 0.5.
    """

    _DEPTH, _DROPOUT, _DEEP_RHO = 2, 0.5, False
    _STEPS = 1000

    def predict_proba(self, X: Any, z: Any = None) -> np.ndarray:
        """(sets, classes): the mean of the networks' probabilities."""
        _, sets, context = self._ask(X, z)
        return self._final(self._answers(sets, context).double()).numpy()  # float32 adds up to 1 ± 1e-7

    def predict(self, X: Any, z: Any = None) -> np.ndarray:
        """(sets,) labels."""
        found = self.predict_proba(X, z)
        return self.classes_[found.argmax(1)]

    def score(self, X: Any, y: Any, z: Any = None, sample_weight: Any = None) -> float:
        """The share of sets whose class is right."""
        given, sets, _ = self._ask(X, z)
        wanted = one_per_set(target_column(X, y), given._replace(sets=sets), "class")
        return float(accuracy_score(wanted, self.predict(X, z), sample_weight=sample_weight))

    def _targets(self, y: Any, given: Read, *, first: bool) -> Tensor:
        labels = one_per_set(y, given, "class")
        if labels.ndim != 1:
            raise ValueError(f"y must be one label for each set, found shape {labels.shape}.")
        missing = is_missing(labels)
        if missing.any():
            b = int(missing.argmax())
            raise ValueError(f"set {b} has no class (found {labels[b]!r}): every set needs one.")
        if first and not hasattr(self, "classes_"):
            self.classes_ = np.unique(labels)
        return torch.from_numpy(codes(labels, self.classes_))

    def fit(self, X: Any, y: Any, z: Any = None, sample_weight: Any = None) -> Any:
        if not (self.warm_start and hasattr(self, "network_")) and hasattr(self, "classes_"):
            del self.classes_
        return super().fit(X, y, z, sample_weight)

    def _outputs(self, y: Tensor | Sets) -> int:
        check_classes(self.classes_, y if isinstance(y, Tensor) else y.values)
        return len(self.classes_)

    def _loss(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor | float]:
        logits, y = model.answers(batch.sets, batch.z), batch.y
        assert isinstance(y, Tensor)
        errors = torch.stack([F.cross_entropy(each, y, reduction="none") for each in logits]).mean(0)
        return weighed(errors, batch)

    def _final(self, answers: Tensor) -> Tensor:
        return answers.softmax(-1).mean(0)
