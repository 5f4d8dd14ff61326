"""A class or one or more values for each member of a set, or the member that does not belong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from torch import Tensor
from torch.nn import functional as F

from ..nn import segment_max, segment_sum
from ..sets import Sets, to_offsets
from ..sets.tables import is_missing
from ..train import Batch
from .layout import Members
from .member_estimator import MemberEstimator
from .parameters import MEMBER_PARAMETERS, documented
from .targets import (
    as_numbers,
    check_outputs,
    class_labels,
    codes,
    find_classes,
    one_per_set,
    per_member,
)


class PerMember(MemberEstimator):
    """Loss over labelled members and targets of members."""

    def _loss(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor | float]:
        """Loss of the labelled members; in training on random parts of the sets, so that no member is relied on."""
        assert isinstance(batch.y, Sets)
        sets, y = batch.sets, batch.y
        if model.training and self.keep < 1:
            places, offsets = _some(sets, self.keep)
            sets, y = sets.take_elements(places, offsets), y.take_elements(places, offsets)
        return self._member_loss(model, model(sets, batch.z), y.values, batch._replace(sets=sets))

    def _member_loss(self, model: Any, answers: Tensor, y: Tensor, batch: Batch) -> tuple[Tensor, Tensor | float]:
        raise NotImplementedError

    def _member_targets(self, y: Any, members: Members) -> np.ndarray:
        """Targets of members, flat, in the order of the members."""
        if y is None:
            raise ValueError("y is needed: one target for each member (NaN or None where it is not known).")
        if isinstance(y, Sets):
            y = y.materialize().values.numpy()
        elif _one_array_per_set(y, members):
            for b, (part, n) in enumerate(zip(y, members.sizes.tolist(), strict=True)):
                if len(part) != n:
                    raise ValueError(f"set {b} has {n} members, but y has {len(part)} targets for it.")
            y = np.concatenate([_masked_as_none(part, object) for part in y]) if len(y) else np.zeros(0)
        y = _masked_as_none(y)
        if y.ndim == 0:
            raise ValueError(
                f"y is a single value ({y.item()!r}); wanted one target for each of the {members.total} members."
            )
        if len(y) != members.total:
            raise ValueError(f"there are {members.total} members, but y has {len(y)} targets.")
        return y if members.rows is None else y[members.rows]

    def _weights(self, weight: Any, members: Members, known: np.ndarray) -> np.ndarray | None:
        """Weights of sets as weights of their labelled members."""
        return None if weight is None else np.repeat(np.asarray(weight, float), members.sizes)[known]


def _masked_as_none(y: Any, dtype: Any = None) -> np.ndarray:
    if isinstance(y, np.ma.MaskedArray):
        plain = y.data.astype(object)
        plain[np.ma.getmaskarray(y)] = None
        return plain
    return np.asarray(y, dtype)


def _one_array_per_set(y: Any, members: Members) -> bool:
    if isinstance(y, np.ndarray) and y.dtype != object and len(y) == members.total:
        return False
    arrays = isinstance(y, list | tuple | np.ndarray) and len(y) == len(members)
    return arrays and all(np.ndim(part) > 0 for part in y)


@documented(MEMBER_PARAMETERS)
class MemberRegressor(RegressorMixin, PerMember):
    """One or more values for each member, seen together with the other members of its set.

    y: one array per set, or one array over all members (or the name of a column of a table); NaN where a target is
    not known: such members are still seen as context. `predict` answers in the form of X: one array per set; for a
    table one array in the order of its rows.

    {parameters}

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(rng.integers(2, 9), 3)) for _ in range(40)]
    >>> y = [x[:, 0] - x[:, 0].mean() for x in X]
    >>> [part.shape for part in MemberRegressor(epochs=2, random_state=0).fit(X, y).predict(X[:2])]
    [(7,), (6,)]
    """

    def predict(self, X: Any, *, z: Any = None) -> Any:
        """Predict one array (members,) or (members, targets) per set; for a table one array over its rows."""
        members, set_level, _ = self._read(X, z)
        return per_member(self._values(members, set_level), members)

    def _values(self, members: Members, set_level: Any) -> np.ndarray:
        out = self.network_.unscale(self._answers(members, set_level).double().mean(0)).numpy()
        return out[:, 0] if self.flat_ else out

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, z: Any = None) -> float:
        """R² over all labelled members; `sample_weight` holds one weight per set."""
        members, set_level, y = self._read(X, z, y)
        wanted = as_numbers(self._member_targets(y, members), "member").reshape(members.total, -1)
        found = self._values(members, set_level).reshape(members.total, -1)
        known = ~np.isnan(wanted).any(1)
        weight = self._weights(sample_weight, members, known)
        return float(r2_score(wanted[known], found[known], sample_weight=weight))

    def _targets(self, y: Any, members: Members, *, first: bool) -> Sets:
        values = as_numbers(self._member_targets(y, members), "member")
        flat = values.reshape(len(values), -1)
        if np.isinf(flat).any():
            raise ValueError(f"the target of member {int(np.isinf(flat).any(1).argmax())} is infinite.")
        if first:
            known = flat[~np.isnan(flat).any(1)]
            if len(known) == 0:
                raise ValueError(f"none of the {len(flat)} members has a target: at least some must be labelled.")
            if (known == known[0]).all(0).any():
                raise ValueError(f"the target is constant ({known[0].tolist()} in all {len(known)} labelled members).")
            self.flat_, self._width = values.ndim == 1, flat.shape[1]
        else:
            check_outputs(flat.shape[1], self.n_outputs_)
        return replace(members, weights=None).layout(np.where(np.isnan(flat), _UNKNOWN, flat))

    def _outputs(self) -> int:
        return self._width

    def _learn_targets(self, y: Sets) -> None:
        self.network_.unscale.learn(y.values[~_unknown(y.values)])

    def _member_loss(self, model: Any, answers: Tensor, y: Tensor, batch: Batch) -> tuple[Tensor, Tensor | float]:
        known = ~_unknown(y)
        errors = (answers[:, known] - model.unscale.scaled(y[known])).square().mean((0, 2))
        return _weighted(errors, known, batch)


@documented(MEMBER_PARAMETERS)
class MemberClassifier(ClassifierMixin, PerMember):
    """A class for each member, seen together with the other members of its set.

    y: as for `MemberRegressor`; None or NaN where a label is not known.

    {parameters}

    Attributes
    ----------
    classes_ : ndarray
        Classes in the order of the columns of `predict_proba`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(rng.integers(2, 9), 3)) for _ in range(40)]
    >>> y = [np.where(x[:, 0] > x[:, 0].mean(), "high", "low") for x in X]
    >>> MemberClassifier(epochs=2, random_state=0).fit(X, y).predict_proba(X[:1])[0].shape
    (7, 2)
    """

    def predict_proba(self, X: Any, *, z: Any = None) -> Any:
        """Predict one array (members, classes) per set; for a table one array over its rows."""
        members, set_level, _ = self._read(X, z)
        return per_member(self._chances(members, set_level), members)

    def _chances(self, members: Members, set_level: Any) -> np.ndarray:
        return self._answers(members, set_level).double().softmax(-1).mean(0).numpy()

    def predict(self, X: Any, *, z: Any = None) -> Any:
        """Predict one array of labels per set; for a table one array over its rows."""
        found = self.predict_proba(X, z=z)
        if isinstance(found, list):
            return [self.classes_[part.argmax(1)] for part in found]
        return self.classes_[found.argmax(1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, z: Any = None) -> float:
        """Accuracy over all labelled members; `sample_weight` holds one weight per set."""
        members, set_level, y = self._read(X, z, y)
        wanted, known = self._labels(y, members)
        found = self.classes_[self._chances(members, set_level).argmax(1)]
        weight = self._weights(sample_weight, members, known)
        return float(accuracy_score(wanted, found[known], sample_weight=weight))

    def _targets(self, y: Any, members: Members, *, first: bool) -> Sets:
        labels, known = self._labels(y, members)
        if first and not hasattr(self, "classes_"):
            if not known.any():
                raise ValueError(f"none of the {len(known)} members has a label: at least some must be labelled.")
            self.classes_ = find_classes(labels)
        numbers = np.full(len(known), -1)
        if known.any():
            numbers[known] = codes(labels, self.classes_)
        return replace(members, weights=None).layout(torch.from_numpy(numbers)[:, None])

    def _labels(self, y: Any, members: Members) -> tuple[np.ndarray, np.ndarray]:
        """Known labels, and for all members whether the label is known."""
        labels = self._member_targets(y, members)
        if labels.ndim != 1:
            raise ValueError(f"y must be one label for each member, found shape {labels.shape}.")
        known = ~is_missing(labels)
        return class_labels(np.array(labels[known].tolist()) if known.any() else labels[:0], "member"), known

    def _outputs(self) -> int:
        return len(self.classes_)

    def _member_loss(self, model: Any, answers: Tensor, y: Tensor, batch: Batch) -> tuple[Tensor, Tensor | float]:
        known = y[:, 0] >= 0
        each = [F.cross_entropy(a[known], y[known, 0], reduction="none") for a in answers]
        return _weighted(torch.stack(each).mean(0), known, batch)


@documented(MEMBER_PARAMETERS)
class OddOneOut(MemberEstimator):
    """The member of each set that does not belong: softmax over the members.

    y: (sets,) the position of the odd member in its set, counted from 0. Every set needs at least one member.

    {parameters}

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(5, 2)) for _ in range(40)]
    >>> y = [i % 5 for i in range(40)]
    >>> OddOneOut(epochs=2, random_state=0).fit(X, y).predict(X[:2]).shape
    (2,)
    """

    def predict_proba(self, X: Any, *, z: Any = None) -> list[np.ndarray]:
        """Predict one array (members,) per set: probabilities of being the odd one, which sum to 1."""
        members, set_level, _ = self._read(X, z)
        layout = members.layout(torch.zeros(members.total, 1))
        logs = torch.stack([log_softmax(a[:, 0], layout) for a in self._answers(members, set_level).double()])
        return np.split(logs.exp().mean(0).numpy(), members.offsets[1:-1])

    def predict(self, X: Any, *, z: Any = None) -> np.ndarray:
        """Predict the position of the odd member, (sets,); −1 for an empty set."""
        return np.array([int(part.argmax()) if len(part) else -1 for part in self.predict_proba(X, z=z)])

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, z: Any = None) -> float:
        """Share of sets whose odd member is found."""
        members, _, y = self._read(X, z, y)
        wanted = one_per_set(y, members, "position of the odd member")
        return float(np.average(self.predict(X, z=z) == wanted, weights=sample_weight))

    def _targets(self, y: Any, members: Members, *, first: bool) -> Sets:
        places = one_per_set(y, members, "position of the odd member")
        if places.dtype.kind not in "iu":
            raise ValueError(f"y must hold the position of the odd member of each set, integers; found {places.dtype}.")
        sizes = members.sizes
        if ((places < 0) | (places >= sizes)).any():
            b = int(((places < 0) | (places >= sizes)).argmax())
            raise ValueError(f"set {b} has {sizes[b]} members, but its odd one would be at position {places[b]}.")
        marks = torch.zeros(members.total, 1)
        marks[torch.from_numpy(members.offsets[:-1] + places.astype(np.int64))] = 1
        return replace(members, weights=None).layout(marks)

    def _loss(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor | float]:
        assert isinstance(batch.y, Sets)
        wanted = batch.y.values[:, 0] == 1
        logs = torch.stack([log_softmax(a[:, 0], batch.sets) for a in model(batch.sets, batch.z)])
        errors = -logs[:, wanted].mean(0)
        if batch.weight is None:
            return errors.sum(), float(len(errors))
        return (errors * batch.weight).sum(), batch.weight.sum()


def log_softmax(scores: Tensor, sets: Sets) -> Tensor:
    """Log of the softmax over the members of each set, (N,) to (N,)."""
    shifted = scores - sets.broadcast(segment_max(scores.detach()[:, None], sets))[:, 0]
    return shifted - sets.broadcast(segment_sum(shifted.exp()[:, None], sets))[:, 0].log()


_UNKNOWN = 1e300  # stands for a target that is not known: sets hold finite numbers


def _unknown(values: Tensor) -> Tensor:
    return (values == _UNKNOWN).any(1)


def _some(sets: Sets, keep: float) -> tuple[Tensor, Tensor]:
    """Random members of each set, a share between `keep` and 1 of them and at least one: places and offsets."""
    share = keep + (1 - keep) * torch.rand(len(sets))
    sizes = torch.minimum((sets.sizes * share).ceil().long(), sets.sizes)
    order = (sets.set_ids + torch.rand(sets.total, dtype=torch.float64)).argsort()
    rank = torch.arange(sets.total) - sets.broadcast(sets.offsets[:-1])
    places = order[rank < sets.broadcast(sizes)]
    return places, to_offsets(sizes)


def _weighted(errors: Tensor, known: Tensor, batch: Batch) -> tuple[Tensor, Tensor | float]:
    if batch.weight is None:
        return errors.sum(), float(len(errors))
    weight = batch.sets.broadcast(batch.weight)[known]
    return (errors * weight).sum(), weight.sum()
