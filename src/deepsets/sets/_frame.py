"""A table with a row for each member, to sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ._sets import Sets


def from_frame(frame: Any, by: str | Sequence[str], columns: Sequence[str] | None, weights: str | None) -> Sets:
    """See `Sets.from_frame`."""
    keys = [by] if isinstance(by, str) else list(by)
    names = [str(c) for c in frame.columns]
    features = list(columns) if columns is not None else [c for c in names if c not in keys and c != weights]
    for name in [*keys, *features, *([weights] if weights else [])]:
        if name not in names:
            raise ValueError(f"the table has no column {name!r}; it has: {', '.join(names)}.")
    if not features:
        raise ValueError(f"no feature columns are left beside {', '.join(keys)}; the table has: {', '.join(names)}.")
    if len(frame) == 0:
        raise ValueError("the table has no rows, so there are no sets.")
    order, sizes = group_rows([_column(frame, key) for key in keys], keys)
    values = np.stack([_numbers(frame, name)[order] for name in features], axis=1)
    flat = torch.from_numpy(_numbers(frame, weights)[order]).to(torch.get_default_dtype()) if weights else None
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]))
    return Sets(torch.from_numpy(values).to(torch.get_default_dtype()), offsets, weights=flat)


def group_rows(keys: list[np.ndarray], names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers that bring rows of equal keys together (groups and rows in order of appearance), and group sizes."""
    codes = np.zeros(len(keys[0]), dtype=np.int64)
    for key, name in zip(keys, names, strict=True):
        missing = np.array([_is_missing(v) for v in key]) if key.dtype.kind in "Of" else np.zeros(len(key), bool)
        if missing.any():
            raise ValueError(f"row {int(missing.argmax())} has no value in the set column {name!r}.")
        _, code = np.unique(key.astype(str) if key.dtype.kind == "O" else key, return_inverse=True)
        _, codes = np.unique(codes * (int(code.max()) + 1) + code, return_inverse=True)
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    appearance = np.empty(len(first), dtype=np.int64)
    appearance[np.argsort(first)] = np.arange(len(first))
    groups = appearance[inverse]
    return np.argsort(groups, kind="stable"), np.bincount(groups)


def _column(frame: Any, name: str) -> np.ndarray:
    return np.asarray(frame[name].to_numpy())


def _numbers(frame: Any, name: str) -> np.ndarray:
    column = _column(frame, name)
    if column.dtype.kind not in "biuf":
        try:
            return column.astype(np.float64)
        except (TypeError, ValueError):
            bad = next((i, v) for i, v in enumerate(column) if not _is_number(v))
            raise ValueError(
                f"column {name!r} must hold numbers, but row {bad[0]} is {bad[1]!r}. "
                "Choose the feature columns with columns=[…]."
            ) from None
    return column.astype(np.float64)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
