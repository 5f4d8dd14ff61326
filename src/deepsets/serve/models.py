"""Models behind the API: what they are, and estimators, which answer the sets of many questions in one batch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .. import io
from ..io.predictions import task_of

EXAMPLES = "examples.json"  # in a model folder: sets the page begins with
_EXAMPLES = [
    ["lion", "tiger", "leopard"],
    ["violin", "cello", "guitar"],
    ["oak", "elm", "birch"],
    ["salmon", "trout", "cod", "sparrow"],
    ["red", "green", "blue"],
]


class Served:
    """A model under a name, see `served`. Subclasses check questions, and answer lists of them."""

    kind: ClassVar[str]
    abilities: ClassVar[list[str]]
    part_of: str | None = None  # the model that blends this one with others

    def __init__(
        self, name: str, model: Any, examples: list[list[Any]] | None = None, about: str | None = None
    ) -> None:
        self.name, self.model, self.about = name, model, about or f"{type(model).__name__} {self._trained(model)}"
        self.task, self.context = task_of(model).name, int(getattr(model, "n_context_", 0))
        self._examples = examples

    def card(self) -> dict[str, Any]:
        """The entry of `/v1/models`."""
        names = getattr(self.model, "feature_names_in_", None)
        width = int(getattr(self.model, "n_features_in_", 0))
        classes = getattr(self.model, "classes_", None)
        vocabulary = getattr(self.model, "vocabulary_", None)
        return {
            "name": self.name,
            "kind": self.kind,
            "class": type(self.model).__name__,
            "task": self.task,
            "about": self.about,
            "part_of": self.part_of,
            "abilities": self.abilities,
            "elements": len(vocabulary) if vocabulary else None,
            "classes": None if classes is None else classes.tolist(),
            "features": None if vocabulary else width if names is None else [str(name) for name in names],
            "context": self.context,
            "examples": self.examples(),
        }

    def examples(self) -> list[list[Any]]:
        """Sets the page begins with: those that came with the model, or some made from it."""
        if self._examples is None:
            self._examples = [] if self.context else self._example_sets()
        return self._examples

    def _example_sets(self) -> list[list[Any]]:
        raise NotImplementedError

    @staticmethod
    def _trained(model: Any) -> str:
        raise NotImplementedError


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


def served(name: str, model: Any, examples: list[list[Any]] | None = None, about: str | None = None) -> Served:
    """Wrap a fitted expander or estimator for the API.

    Parameters
    ----------
    name : str
        Name of the model in the API.
    model : estimator or expander
        A fitted model.
    examples : list of list, optional
        Sets the page begins with.
    about : str, optional
        Description for the page.

    Returns
    -------
    Served
        The model, for `create_app` and `serve`.
    """
    from ..expand import BaseExpander
    from .expanders import ServedExpander

    kind = ServedExpander if isinstance(model, BaseExpander) else ServedEstimator
    return kind(name, model, examples, about)


def load(folders: Iterable[Path]) -> list[Served]:
    """Load model folders, each under the name of its folder.

    Parameters
    ----------
    folders : iterable of Path
        Model folders. A file ``examples.json`` in one of them, a list of sets, gives the page something to show.

    Returns
    -------
    list of Served
        The models.
    """
    out: dict[str, Served] = {}
    for folder in folders:
        model, name = io.load(folder), folder.resolve().name
        if name in out:
            raise ValueError(f"two model folders are called {name!r}: their names must differ.")
        out[name] = served(name, model, _read(folder / EXAMPLES))
    return list(out.values())


def words() -> list[Served]:
    """Wrap the expanders of English words that come with the package: the blend first, then its methods.

    Returns
    -------
    list of Served
        The models.
    """
    from ..expand.words import WORD_METHODS, word_data, word_expander

    about = f"over {len(word_data().words):,} English words and phrases"
    blend, *methods = (
        served(method, word_expander(method), _EXAMPLES, f"{method.replace('-', ' ').title()} {about}")
        for method in WORD_METHODS
    )
    for method in methods:
        method.part_of = blend.name
    return [blend, *methods]


def _read(path: Path) -> list[list[Any]] | None:
    if not path.is_file():
        return None
    try:
        sets = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(sets, list) or not all(isinstance(members, list) for members in sets):
        raise ValueError(f"{path} must hold a list of sets, each a list of members.")
    return sets


def to_json(values: Any) -> Any:
    """Numbers as JSON knows them: NaN and infinities become null."""
    values = np.asarray(values)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        values = np.where(np.isfinite(values), values.astype(object), None)
    return values.tolist()
