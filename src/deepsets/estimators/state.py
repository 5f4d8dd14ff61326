"""Parts of stored estimators, checked before anything is built from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

_DTYPES = ("object", "b", "U", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")


def bounded(value: Any, name: str, most: int, least: int = 1) -> int:
    """A whole number of a model file, refused where it is out of range."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number between {least} and {most}, found {value!r}.")
    return value


def under(parts: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """The tensors whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix + "."): part for name, part in parts.items() if name.startswith(prefix + ".")}


def are_strings(value: Any, count: int | None = None) -> bool:
    """Whether a value of a model file is a list of (so many) strings."""
    return isinstance(value, list) and all(isinstance(v, str) for v in value) and count in (None, len(value))


def array_facts(array: np.ndarray, name: str) -> dict[str, Any]:
    """Labels or names as JSON-able facts."""
    entries, kind = array.tolist(), array.dtype.kind
    if kind not in "biufUO" or not all(isinstance(v, str | int | float | bool) for v in entries):
        raise ValueError(
            f"{name} holds {array.dtype} entries such as {entries[0]!r}: strings, numbers and booleans can be saved."
        )
    return {"dtype": {"O": "object", "b": "b", "U": "U"}.get(kind, array.dtype.str[1:]), "entries": entries}


def to_array(facts: Any, name: str) -> np.ndarray:
    """Inverse of `array_facts`."""
    entries, dtype = (facts.get("entries"), facts.get("dtype")) if isinstance(facts, dict) else (None, None)
    if not isinstance(entries, list) or not all(isinstance(v, str | int | float | bool) for v in entries):
        raise ValueError(f"{name!r} is not a list of entries.")
    if dtype not in _DTYPES:
        raise ValueError(f"{name!r} has the unknown type {dtype!r}.")
    return np.array(entries, dtype={"object": object, "b": bool, "U": None}.get(dtype, dtype))


def check_arrays(
    head: str, tensors: dict[str, torch.Tensor], shapes: dict[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """The float64 arrays of a head; ValueError where one is missing, has another shape or is not finite."""
    for name, shape in shapes.items():
        if name not in tensors or tuple(tensors[name].shape) != shape or tensors[name].dtype != torch.float64:
            raise ValueError(f"the {head} head lacks an array {name!r} of shape {shape}.")
        if not bool(tensors[name].isfinite().all()):
            raise ValueError(f"the array {name!r} of the {head} head is not finite.")
    return {name: tensors[name].numpy() for name in shapes}


def as_tensors(head: Any) -> dict[str, torch.Tensor]:
    """The arrays of a head, a named tuple, as tensors for a model file."""
    arrays = ((name, value) for name, value in head._asdict().items() if isinstance(value, np.ndarray))
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in arrays}
