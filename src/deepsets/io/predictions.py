"""Answers of models as columns of a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table_sets import TableSets


def answers(model: Any, part: TableSets, by: str) -> dict[str, Any]:
    """The columns for whole sets: their name, `prediction`, and for classes `probability_…`."""
    odd = type(model).__name__ == "OddOneOut"
    out = naming(part, by, per_member=model._PER_MEMBER and not odd)
    if odd:
        each = model.predict_proba(part.X, part.z)
        places = [int(p.argmax()) if len(p) else -1 for p in each]
        return out | {"prediction": places, "probability": [float(p.max()) if len(p) else None for p in each]}
    ask = model.predict_proba if hasattr(model, "classes_") else model.predict
    return out | columns(model, flat(ask(part.X, part.z)))


def columns(model: Any, values: np.ndarray) -> dict[str, Any]:
    """Numbers (n,) or (n, outputs), or probabilities (n, classes), under their names."""
    if hasattr(model, "classes_"):
        shares = {f"probability_{label}": values[:, i] for i, label in enumerate(model.classes_)}
        return {"prediction": model.classes_[values.argmax(1)], **shares}
    if values.ndim == 1:
        return {"prediction": values}
    return {f"prediction_{name}": values[:, i] for i, name in enumerate(output_names(model, values.shape[1]))}


def naming(part: TableSets, by: str, *, per_member: bool) -> dict[str, Any]:
    """The first columns of an answer: the set, and for answers of members the place in it, from 0."""
    if not per_member:
        return {by: part.ids}
    import pyarrow as pa

    numbers = np.repeat(np.arange(len(part)), part.sizes)
    starts = np.repeat(np.cumsum(part.sizes) - part.sizes, part.sizes)
    return {by: part.ids.take(pa.array(numbers)), "member": np.arange(len(numbers)) - starts}


def output_names(model: Any, count: int) -> list[str]:
    """A name for each number the model gives: its class, its target, or its number."""
    if hasattr(model, "classes_"):
        return [str(label) for label in model.classes_]
    named = list(getattr(model, "target_names_", []))
    return named if len(named) == count else [str(i) for i in range(count)]


def flat(values: Any) -> np.ndarray:
    """Answers of members come as one array a set."""
    return np.concatenate(values) if isinstance(values, list) else values
