"""Estimators behind the API: the sets of many questions in one batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .models import Served, to_json


class SetsQuery(NamedTuple):
    """The sets of one question, arrays (members, features) or lists of tokens, and their context (sets, columns)."""

    sets: list[Any]
    z: np.ndarray | None


class ServedEstimator(Served):
    """An estimator that answers ``predict``, and ``explain`` where it can."""

    kind = "estimator"

    @property
    def abilities(self) -> list[str]:  # type: ignore[override]
        """Methods that requests can call."""
        return ["predict", "explain"] if hasattr(self.model, "explain") else ["predict"]

    @staticmethod
    def _trained(model: Any) -> str:
        return f"fitted on {model.n_sets_:,} sets" if getattr(model, "n_sets_", None) else ""

    def read(self, sets: list[list[Any]], z: list[list[float]] | None) -> SetsQuery:
        """Convert the sets of a question to what the estimator takes."""
        convert = self._tokens if getattr(self.model, "vocabulary_", None) else self._features
        query = SetsQuery([convert(b, members) for b, members in enumerate(sets)], self._context(z, len(sets)))
        if self.task == "odd-one-out" and not all(len(members) for members in query.sets):
            raise ValueError("an empty set has no odd member: every set needs at least one member.")
        return query

    def _features(self, b: int, members: list[Any]) -> np.ndarray:
        width = self.model.n_features_in_
        for m, member in enumerate(members):
            if not isinstance(member, list) or len(member) != width:
                found = f"{len(member)} numbers" if isinstance(member, list) else repr(member)[:60]
                raise ValueError(f"member {m} of set {b} is {found}; {self.name} takes {width} features.")
        return np.array(members, dtype=np.float64).reshape(len(members), width)  # null becomes NaN

    def _tokens(self, b: int, members: list[Any]) -> list[Any]:
        if any(isinstance(member, list) for member in members):
            raise ValueError(f"set {b} holds features; {self.name} takes tokens.")
        return members

    def _context(self, z: list[list[float]] | None, count: int) -> np.ndarray | None:
        if z is None:
            if self.context:
                raise ValueError(f"{self.name} needs z of {self.context} numbers for each set; none was given.")
            return None
        widths = {len(row) for row in z}
        if len(z) != count or widths != {self.context}:
            raise ValueError(
                f"z must have one row of {self.context} numbers for each of the {count} sets; found {len(z)} rows "
                f"of {', '.join(map(str, sorted(widths)))} numbers."
            )
        return np.array(z, dtype=np.float64)

    def predict(self, queries: list[SetsQuery]) -> list[dict[str, Any]]:
        """Predictions and, for classes, probabilities; one call of the estimator for all questions."""
        sets = [members for query in queries for members in query.sets]
        context = {} if queries[0].z is None else {"z": np.concatenate([query.z for query in queries])}
        probabilities = self.model.predict_proba(sets, **context) if hasattr(self.model, "predict_proba") else None
        if probabilities is None:
            predictions = [to_json(part) for part in self.model.predict(sets, **context)]
        elif self.task == "odd-one-out":
            predictions = [int(part.argmax()) for part in probabilities]
        else:
            predictions = [self.model.classes_[part.argmax(-1)].tolist() for part in probabilities]
        out, first = [], 0
        for query in queries:
            here = slice(first, first := first + len(query.sets))
            out.append({"predictions": predictions[here]})
            if probabilities is not None:
                out[-1]["probabilities"] = [to_json(part) for part in probabilities[here]]
        return out

    def explain(self, queries: list[SetsQuery]) -> list[dict[str, Any]]:
        """What each member adds: the prediction for its set minus the prediction without it."""
        return [
            {"contributions": self._contributions(query), "predictions": predicted["predictions"]}
            for query, predicted in zip(queries, self.predict(queries), strict=True)
        ]

    def _contributions(self, query: SetsQuery) -> list[Any]:
        flat = self.model.n_outputs_ == 1
        parts = self.model.explain(query.sets, z=query.z)
        return [to_json(part[:, 0] if flat and part.ndim > 1 else part) for part in parts]

    def _example_sets(self) -> list[list[Any]]:
        """Two small sets: tokens of the vocabulary, or members drawn from a normal distribution."""
        tokens = getattr(self.model, "vocabulary_", None)
        if tokens:
            return [list(tokens[:3]), list(tokens[-3:])]
        drawn = np.random.default_rng(0).normal(size=(2, 8, self.model.n_features_in_))
        return drawn.round(3).tolist()
