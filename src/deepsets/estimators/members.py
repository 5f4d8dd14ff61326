"""A label or a number for each member of a set."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from torch import Tensor, nn
from torch.nn import functional as F

from ..sets import Sets, is_missing
from ..train import Batch
from .base import SetEstimator, target_column
from .input import Read
from .network import MemberNetwork
from .targets import as_numbers, check_classes, check_outputs, codes, per_member


class PerMember(SetEstimator):
    _PER_MEMBER = True
    _STEPS = 400
    _WARMUP = 0.1

    def __init__(
        self,
        *,
        width: int = 64,
        depth: int = 2,
        dropout: float = 0.3,
        n_estimators: int = 1,
        noise: float = 0.1,
        keep: float = 0.3,
        epochs: int | None = None,
        batch_size: int = 24,
        learning_rate: float = 2e-3,
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
        self.noise = noise
        self.keep = keep
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
        return MemberNetwork(
            inputs, z, outputs, width=self.width, depth=self.depth, dropout=self.dropout, noise=self.noise
        )

    def _loss(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor | float]:
        """The loss of the labelled members; in training on random parts of the sets, so that no mate is relied on."""
        assert isinstance(batch.y, Sets)
        places = _some(batch.sets, self.keep) if model.training and self.keep < 1 else None
        if places is not None:
            batch = batch._replace(sets=_at(batch.sets, *places), y=_at(batch.y, *places))
        answers = model.answers(batch.sets, batch.z)
        assert isinstance(batch.y, Sets)
        return self._member_loss(model, answers, batch.y.values, batch)

    def _member_loss(self, model: Any, answers: Tensor, y: Tensor, batch: Batch) -> tuple[Tensor, Tensor | float]:
        raise NotImplementedError

    def _member_targets(self, y: Any, given: Read) -> np.ndarray:
        """Targets of members, flat, in the order of the members."""
        sets = given.sets
        assert sets is not None
        if y is None:
            raise ValueError("y is needed: one target for each member (NaN or None where it is not known).")
        if isinstance(y, Sets):
            y = y.materialize().values.numpy()
        elif _one_array_a_set(y, sets):
            for b, (part, n) in enumerate(zip(y, sets.sizes.tolist(), strict=True)):
                if len(part) != n:
                    raise ValueError(f"set {b} has {n} members, but y has {len(part)} targets for it.")
            y = np.concatenate([np.asarray(part, dtype=object) for part in y]) if len(y) else np.zeros(0)
        y = np.asarray(y)
        if len(y) != sets.total:
            raise ValueError(f"there are {sets.total} members, but y has {len(y)} targets.")
        return y if given.rows is None else y[given.rows]


def _one_array_a_set(y: Any, sets: Sets) -> bool:
    if isinstance(y, np.ndarray) and y.dtype != object and len(y) == sets.total:
        return False
    arrays = isinstance(y, list | tuple | np.ndarray) and len(y) == len(sets)
    return arrays and all(np.ndim(part) > 0 for part in y)


class MemberRegressor(RegressorMixin, PerMember):
    """A number (or several) for each member, seen together with its set mates.

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(rng.integers(2, 9), 3)) for _ in range(40)]
    >>> y = [x[:, 0] - x[:, 0].mean() for x in X]
    >>> [part.shape for part in MemberRegressor(epochs=2, random_state=0).fit(X, y).predict(X[:2])]
    [(7,), (6,)]

    y: one array a set, or one array over all members (a column of the table); NaN where it is not known: such members
    are still seen by their set mates. `predict` answers in the form of X: one array a set; for a table one array in
    the order of its rows. `noise` (in deviations) on the features and random parts of the sets, of at least the
    share `keep`, make small data go further.
    """

    def predict(self, X: Any, z: Any = None) -> Any:
        """One array (members,) or (members, targets) a set; for a table one array over its rows."""
        given, sets, context = self._ask(X, z)
        out = self.network_.unscale(self._answers(sets, context).mean(0)).detach().numpy()
        return per_member(out[:, 0] if self._flat_ else out, given, sets)

    def score(self, X: Any, y: Any, z: Any = None, sample_weight: Any = None) -> float:
        """R² over all labelled members; sample_weight: one a set."""
        given, sets, _ = self._ask(X, z)
        wanted = self._targets(target_column(X, y), given._replace(sets=sets), first=False).values
        found = self.predict(X, z)
        flat = torch.as_tensor(found[given.rows] if given.rows is not None else np.concatenate(found))
        known = ~wanted.isnan().any(1)
        weight = _weights_of_members(sample_weight, sets, known.numpy())
        return float(r2_score(wanted[known], flat.reshape(len(flat), -1)[known], sample_weight=weight))

    def _targets(self, y: Any, given: Read, *, first: bool) -> Sets:
        values = as_numbers(self._member_targets(y, given), "member")
        if np.isinf(values).any():
            raise ValueError(
                f"the target of member {int(np.isinf(values).reshape(len(values), -1).any(1).argmax())} is infinite."
            )
        if first:
            self._flat_ = values.ndim == 1
        values = values.reshape(len(values), -1)
        check_outputs(values.shape[1], getattr(self, "n_outputs_", 0), first=first)
        return given.sets.materialize().with_values(torch.from_numpy(values).float())  # type: ignore[union-attr]

    def _outputs(self, y: Tensor | Sets) -> int:
        assert isinstance(y, Sets)
        known = y.values[~y.values.isnan().any(1)]
        if len(known) == 0:
            raise ValueError(f"none of the {y.total} members has a target: at least some must be labelled.")
        if bool((known == known[0]).all(0).any()):
            raise ValueError(f"the target is constant ({known[0].tolist()} in all {len(known)} labelled members).")
        return y.values.shape[1]

    def _learn_targets(self, y: Tensor | Sets) -> None:
        assert isinstance(y, Sets)
        self.network_.unscale.learn(y.values[~y.values.isnan().any(1)])

    def _member_loss(self, model: Any, answers: Tensor, y: Tensor, batch: Batch) -> tuple[Tensor, Tensor | float]:
        known = ~y.isnan().any(1)
        errors = (answers[:, known] - model.unscale.scaled(y[known])).square().mean((0, 2))
        return _weighed_members(errors, known, batch)


class MemberClassifier(ClassifierMixin, PerMember):
    """A class for each member, seen together with its set mates.

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(rng.integers(2, 9), 3)) for _ in range(40)]
    >>> y = [np.where(x[:, 0] > x[:, 0].mean(), "high", "low") for x in X]
    >>> MemberClassifier(epochs=2, random_state=0).fit(X, y).predict_proba(X[:1])[0].shape
    (7, 2)

    y: as for `MemberRegressor`; None (or NaN) where a label is not known.
    """

    def predict_proba(self, X: Any, z: Any = None) -> Any:
        """One array (members, classes) a set; for a table one array over its rows."""
        given, sets, context = self._ask(X, z)
        out = self._answers(sets, context).double().softmax(-1).mean(0).numpy()
        return per_member(out, given, sets)

    def predict(self, X: Any, z: Any = None) -> Any:
        """One array of labels a set; for a table one array over its rows."""
        found = self.predict_proba(X, z)
        if isinstance(found, list):
            return [self.classes_[part.argmax(1)] for part in found]
        return self.classes_[found.argmax(1)]

    def score(self, X: Any, y: Any, z: Any = None, sample_weight: Any = None) -> float:
        """The share of labelled members whose class is right; sample_weight: one a set."""
        given, sets, _ = self._ask(X, z)
        wanted, known = self._labels(target_column(X, y), given._replace(sets=sets))
        found = self.predict(X, z)
        flat = found[given.rows] if given.rows is not None else np.concatenate(found)
        weight = _weights_of_members(sample_weight, sets, known)
        return float(accuracy_score(wanted, flat[known], sample_weight=weight))

    def fit(self, X: Any, y: Any, z: Any = None, sample_weight: Any = None) -> Any:
        if not (self.warm_start and hasattr(self, "network_")) and hasattr(self, "classes_"):
            del self.classes_
        return super().fit(X, y, z, sample_weight)

    def _targets(self, y: Any, given: Read, *, first: bool) -> Sets:
        labels, known = self._labels(y, given)
        if first and not hasattr(self, "classes_"):
            if not known.any():
                raise ValueError(f"none of the {len(known)} members has a label: at least some must be labelled.")
            self.classes_ = np.unique(labels)
        numbers = np.full(len(known), -1)
        if known.any():
            numbers[known] = codes(labels, self.classes_)
        return given.sets.materialize().with_values(torch.from_numpy(numbers)[:, None])  # type: ignore[union-attr]

    def _labels(self, y: Any, given: Read) -> tuple[np.ndarray, np.ndarray]:
        """The labels that are known, and for all members whether it is known."""
        labels = self._member_targets(y, given)
        if labels.ndim != 1:
            raise ValueError(f"y must be one label for each member, found shape {labels.shape}.")
        known = ~is_missing(labels)
        return np.array(labels[known].tolist()), known

    def _outputs(self, y: Tensor | Sets) -> int:
        assert isinstance(y, Sets)
        check_classes(self.classes_, y.values[:, 0])
        return len(self.classes_)

    def _member_loss(self, model: Any, answers: Tensor, y: Tensor, batch: Batch) -> tuple[Tensor, Tensor | float]:
        known = y[:, 0] >= 0
        each = [F.cross_entropy(a[known], y[known, 0], reduction="none") for a in answers]
        return _weighed_members(torch.stack(each).mean(0), known, batch)


def _some(sets: Sets, keep: float) -> tuple[Tensor, Tensor]:
    """Random members of each set, a share between `keep` and 1 of them and at least one: places and offsets."""
    share = keep + (1 - keep) * torch.rand(len(sets))
    sizes = torch.minimum((sets.sizes * share).ceil().long(), sets.sizes)
    order = (sets.set_ids + torch.rand(sets.total, dtype=torch.float64)).argsort()
    rank = torch.arange(sets.total) - sets.broadcast(sets.offsets[:-1])
    places = order[rank < sets.broadcast(sizes)]
    return places, torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def _at(sets: Sets, places: Tensor, offsets: Tensor) -> Sets:
    sets = sets.materialize()
    return Sets.unchecked(sets.values[places], offsets, None, None if sets.weights is None else sets.weights[places])


def _weights_of_members(weight: Any, sets: Sets, known: np.ndarray) -> np.ndarray | None:
    """Weights of sets as weights of their labelled members."""
    return None if weight is None else np.repeat(np.asarray(weight, float), sets.sizes.numpy())[known]


def _weighed_members(errors: Tensor, known: Tensor, batch: Batch) -> tuple[Tensor, Tensor | float]:
    if batch.weight is None:
        return errors.sum(), float(len(errors))
    weight = batch.sets.broadcast(batch.weight)[known]
    return (errors * weight).sum(), weight.sum()
