"""Estimators, served: the sets of many questions in one batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .models import Served, plain

_TASKS = {
    "SetRegressor": "regression",
    "SetClassifier": "classification",
    "MemberRegressor": "member-regression",
    "MemberClassifier": "member-classification",
    "OddOneOut": "odd-one-out",
}


class Asked(NamedTuple):
    """Sets of one question: arrays (members, features), or lists of tokens. z: (sets, Z)."""

    sets: list[Any]
    z: np.ndarray | None


class ServedEstimator(Served):
    """Answers `predict`, and `explain` where the estimator does."""

    kind = "estimator"

    def __init__(
        self, name: str, model: Any, examples: list[list[Any]] | None = None, about: str | None = None
    ) -> None:
        trained = getattr(model, "n_sets_", None)
        of = f" that learnt from {trained:,} sets" if trained else ""
        super().__init__(name, model, examples, about or f"a {type(model).__name__}{of}")
        self.abilities = ["predict", "explain"] if hasattr(model, "explain") else ["predict"]
        self._known = set(getattr(model, "vocabulary_", ()))

    def task(self) -> str:
        return _TASKS[type(self.model).__name__]

    def read(self, sets: list[list[Any]], z: list[list[float]] | None) -> Asked:
        """Sets of JSON to what the estimator takes; its own checks run here, before others are asked with it."""
        take = self._tokens if getattr(self.model, "vocabulary_", None) else self._features
        asked = Asked([take(b, members) for b, members in enumerate(sets)], _rows(z))
        if self.task() == "odd-one-out" and not all(len(members) for members in asked.sets):
            raise ValueError("an empty set has no odd one: wanted at least one member in each set.")
        self.model._ask(asked.sets, asked.z)
        return asked

    def _features(self, b: int, members: list[Any]) -> np.ndarray:
        width = self.model.n_features_in_
        for m, member in enumerate(members):
            if not isinstance(member, list) or len(member) != width:
                found = f"{len(member)} numbers" if isinstance(member, list) else repr(member)[:60]
                raise ValueError(f"member {m} of set {b} is {found}; {self.name} wants {width} features.")
        return np.array(members, dtype=np.float64).reshape(len(members), width)  # null is NaN

    def _tokens(self, b: int, members: list[Any]) -> list[Any]:
        for member in members:
            if isinstance(member, list) or member not in self._known:
                found = "features" if isinstance(member, list) else repr(member)[:60]
                raise ValueError(
                    f"set {b} holds {found}; {self.name} wants tokens, of the {len(self._known)} it knows."
                )
        return members

    def predict(self, questions: list[Asked]) -> list[dict[str, Any]]:
        """Predictions, and where there are classes their probabilities; for all questions by one call."""
        sets = [members for asked in questions for members in asked.sets]
        z = None if questions[0].z is None else np.concatenate([asked.z for asked in questions])
        shares = self.model.predict_proba(sets, z) if hasattr(self.model, "predict_proba") else None
        if shares is None:
            answers = [plain(part) for part in self.model.predict(sets, z)]
        elif self.task() == "odd-one-out":
            answers = [int(part.argmax()) for part in shares]
        else:
            answers = [self.model.classes_[part.argmax(-1)].tolist() for part in shares]
        out, first = [], 0
        for asked in questions:
            last = first + len(asked.sets)
            answer = {"predictions": answers[first:last]}
            if shares is not None:
                answer["probabilities"] = [plain(part) for part in shares[first:last]]
            out.append(answer)
            first = last
        return out

    def explain(self, asked: Asked) -> dict[str, Any]:
        """What each member adds: the answer for its set minus the answer without it."""
        parts = self.model.explain(asked.sets, asked.z)
        flat = self.model.n_outputs_ == 1
        contributions = [plain(part[:, 0] if flat else part) for part in parts]
        return {"contributions": contributions, "predictions": self.predict([asked])[0]["predictions"]}

    def _some_examples(self) -> list[list[Any]]:
        """Two sets of eight members, drawn around the mean of the training data."""
        scale = self.model.network_.scale
        if scale is None:
            tokens = self.model.vocabulary_
            return [tokens[:3], tokens[-3:]]
        mean, deviation = scale.mean.numpy(), 1 / scale.inverse.numpy()
        drawn = mean + deviation * np.random.default_rng(0).normal(size=(2, 8, len(mean)))
        return [[[float(f"{x:.4g}") for x in member] for member in members] for members in drawn]


def _rows(z: list[list[float]] | None) -> np.ndarray | None:
    if z is None:
        return None
    if len({len(row) for row in z}) != 1:
        raise ValueError("the rows of z must be as many as the sets, and have the same length.")
    return np.array(z, dtype=np.float64)
