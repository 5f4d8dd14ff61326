"""Models behind the API: what they are and what they can do."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

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
    from .estimators import ServedEstimator
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
