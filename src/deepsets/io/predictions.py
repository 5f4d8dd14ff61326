"""The tasks of models, under one name everywhere, and their predictions as columns of a table."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .storage import arrow
from .table_sets import TableSets


class Task(NamedTuple):
    """Task that a model can be fitted for.

    Attributes
    ----------
    name : str
        Name on the command line, in the service and in model cards.
    estimator : str or None
        Name of the estimator class; None for set expansion, which has several.
    per_member : bool
        Whether there is one prediction per member instead of one per set.
    classes : bool
        Whether predictions are classes.
    about : str
        What is predicted, for model cards.
    """

    name: str
    estimator: str | None
    per_member: bool
    classes: bool
    about: str


_MEMBER = "predicts {target} of each member, given the other members of its set"
TASKS = {
    task.name: task
    for task in (
        Task("set-regression", "SetRegressor", False, False, "predicts {target} of a set: {outputs} per set"),
        Task("set-classification", "SetClassifier", False, True, "predicts {target} of a set: one of {classes}"),
        Task("member-regression", "MemberRegressor", True, False, f"{_MEMBER}: {{outputs}}"),
        Task("member-classification", "MemberClassifier", True, True, f"{_MEMBER}: one of {{classes}}"),
        Task("odd-one-out", "OddOneOut", False, False, "predicts which member does not belong to its set"),
        Task("expansion", None, False, False, "finds elements that belong to the same set as a few given ones"),
    )
}


def task_of(model: Any) -> Task:
    """Return the task of a model."""
    name = model if isinstance(model, str) else type(model).__name__
    if name == "SupportDistributionMachine":
        return TASKS["set-regression"]
    return next((task for task in TASKS.values() if task.estimator == name), TASKS["expansion"])


def prediction_columns(model: Any, part: TableSets, by: str) -> dict[str, Any]:
    """Predict whole sets: their names, for members the position, ``prediction``, and ``probability_…`` for classes."""
    task = task_of(model)
    out = naming_columns(part, by, per_member=task.per_member)
    z = {} if part.z is None else {"z": part.z}
    if task.name == "odd-one-out":
        each = model.predict_proba(part.X, **z)
        places = [int(p.argmax()) if len(p) else -1 for p in each]
        return out | {"prediction": places, "probability": [float(p.max()) if len(p) else None for p in each]}
    ask = model.predict_proba if hasattr(model, "classes_") else model.predict
    return out | output_columns(model, flatten(ask(part.X, **z)))


def output_columns(model: Any, values: np.ndarray) -> dict[str, Any]:
    """Return the outputs of a model under their names."""
    if hasattr(model, "classes_"):
        shares = {f"probability_{label}": values[:, i] for i, label in enumerate(model.classes_)}
        return {"prediction": model.classes_[values.argmax(1)], **shares}
    if values.ndim == 1:
        return {"prediction": values}
    return {f"prediction_{name}": values[:, i] for i, name in enumerate(output_names(model, values.shape[1]))}


def naming_columns(part: TableSets, by: str, *, per_member: bool) -> dict[str, Any]:
    """Return the first columns of a table of predictions: the name of the set, and for members the position in it."""
    if not per_member:
        return {by: part.ids}
    sets = np.repeat(np.arange(len(part)), part.sizes)
    starts = np.repeat(np.cumsum(part.sizes) - part.sizes, part.sizes)
    return {by: part.ids.take(arrow().array(sets)), "member": np.arange(len(sets)) - starts}


def output_names(model: Any, count: int) -> list[str]:
    """Return a name for each output of a model: its class, its target, or its number."""
    if hasattr(model, "classes_"):
        return [str(label) for label in model.classes_]
    named = list(getattr(model, "target_names_", []))
    return named if len(named) == count else [str(i) for i in range(count)]


def flatten(values: Any) -> np.ndarray:
    """Concatenate predictions of members, which come as one array per set; leave others as they are."""
    return np.concatenate(values) if isinstance(values, list) else values
