"""A class, or several labels, for each set."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import accuracy_score

from ..sets.tables import is_missing
from .layout import Members
from .parameters import CLASS_WEIGHT, SET_PARAMETERS, documented
from .set_estimator import SetEstimator
from .targets import check_outputs, class_labels, codes, find_classes, one_per_set
from .task import Task


@documented(SET_PARAMETERS + CLASS_WEIGHT)
@dataclass(kw_only=True, eq=False, repr=False)
class SetClassifier(ClassifierMixin, SetEstimator):
    """A class, or several labels, for each set.

    Labels come as a list of lists of labels, or as an indicator matrix (sets, labels); then `predict` gives an
    indicator matrix and `predict_proba` the probability of each label.

    {parameters}

    Attributes
    ----------
    classes_ : ndarray
        Classes or labels, in the order of the columns of `predict_proba`.
    head_weights_, head_losses_ : dict
        Share of each head in the blend; held-out log loss of each head and of the blend.
    calibration_error_ : float
        Expected calibration error of the out-of-fold probabilities.
    mergeable_ : bool
        Whether `encode` gives states that merge.
    feature_names_in_, n_features_in_, n_sets_, n_members_, vocabulary_, target_names_

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(rng.integers(2, 9), 3)) for _ in range(60)]
    >>> y = ["wide" if np.ptp(x) > 3.5 else "narrow" for x in X]
    >>> model = SetClassifier(random_state=0).fit(X, y)
    >>> model.predict_proba(X[:2]).shape
    (2, 2)
    """

    class_weight: str | dict[Any, float] | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def predict_proba(self, X: Any, *, z: Any = None) -> np.ndarray:
        """Predict probabilities of classes, or of labels: (sets, classes)."""
        return self._final(self._answers(*self._read(X, z)[:2]))

    def predict(self, X: Any, *, z: Any = None) -> np.ndarray:
        """Predict the most probable class, (sets,); for labels an indicator matrix (sets, labels)."""
        return self._decide(self.predict_proba(X, z=z))

    def _decide(self, chance: np.ndarray) -> np.ndarray:
        return (chance > 0.5).astype(int) if self._kind() == "labels" else self.classes_[chance.argmax(1)]

    def _kind(self) -> Any:
        return "classes" if self.flat_ else "labels"

    def _final(self, answers: np.ndarray) -> np.ndarray:
        return answers

    def _task(self, y: Any, members: Members, *, first: bool) -> Task:
        labels = one_per_set(y, members, "class")
        many = labels.ndim == 2 or (
            labels.dtype == object and len(labels) > 0 and isinstance(labels[0], list | tuple | set)
        )
        if labels.ndim == 2 and labels.shape[1] == 1:
            warnings.warn("A column-vector y was passed when a 1d array was expected.", DataConversionWarning, 4)
            labels, many = labels[:, 0], False
        if first:
            self.__dict__.pop("classes_", None)
        if first or not hasattr(self, "flat_"):
            self.flat_ = not many
        if many:
            return self._label_task(labels, first)
        missing = is_missing(labels)
        if missing.any():
            b = int(missing.argmax())
            raise ValueError(f"set {b} has no class (found {labels[b]!r}): every set needs one.")
        labels = class_labels(labels, "set")
        if first:
            self.classes_ = find_classes(labels)
        return Task("classes", codes(labels, self.classes_), len(self.classes_))

    def _label_task(self, labels: np.ndarray, first: bool) -> Task:
        """Indicators of labels, from a matrix or from lists."""
        if labels.ndim == 2 and labels.dtype != object and labels.dtype.kind not in "US":
            if not np.isin(labels, (0, 1)).all():
                raise ValueError(
                    f"y must be one label for each set, or an indicator matrix of 0 and 1; found shape {labels.shape}."
                )
            if first:
                self.classes_ = np.arange(labels.shape[1])
            check_outputs(labels.shape[1], len(self.classes_))
            indicators = labels.astype(np.float64)
        else:
            lists = [list(dict.fromkeys(row)) for row in labels.tolist()]
            if first:
                self.classes_ = np.unique([label for row in lists for label in row])
            indicators = np.zeros((len(lists), len(self.classes_)))
            for i, row in enumerate(lists):
                if row:
                    indicators[i, codes(np.array(row), self.classes_)] = 1
        constant = (indicators == indicators[:1]).all(0)
        if first and constant.any():
            raise ValueError(
                f"the label {self.classes_[constant].tolist()[0]!r} is the same in all sets: leave it out."
            )
        return Task("labels", indicators, len(self.classes_))

    def _task_weights(self, task: Task) -> np.ndarray | None:
        if self.class_weight is None:
            return None
        if task.kind == "labels":
            raise ValueError("class_weight is for classes; y holds labels.")
        if self.class_weight == "balanced":
            counts = np.bincount(task.y, minlength=task.outputs)
            return (len(task.y) / (task.outputs * np.maximum(counts, 1)))[task.y]
        if not isinstance(self.class_weight, dict):
            raise ValueError(f"class_weight must be 'balanced', a dict or None, found {self.class_weight!r}.")
        unknown = set(self.class_weight) - set(self.classes_.tolist())
        if unknown:
            raise ValueError(
                f"class_weight names {sorted(map(repr, unknown))[0]}, which is not a class; "
                f"classes are {', '.join(map(repr, self.classes_.tolist()))}."
            )
        return np.array([float(self.class_weight.get(c, 1.0)) for c in self.classes_.tolist()])[task.y]

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, z: Any = None) -> float:
        """Accuracy of the predicted classes; for labels the share of sets with all labels right."""
        return self._score_sets(X, y, sample_weight, z)

    def _score(self, answers: np.ndarray, y: Any, members: Members, weight: Any) -> float:
        wanted = one_per_set(y, members, "class")
        if self._kind() == "labels":
            wanted = self._label_task(wanted, first=False).y.astype(int)
        return float(accuracy_score(wanted, self._decide(answers), sample_weight=weight))

    def _restore(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        if len(self.classes_) != self.n_outputs_:
            raise ValueError(f"there are {len(self.classes_)} classes for {self.n_outputs_} outputs.")
        super()._restore(tensors, facts)
