"""A table with a row for each member, to sets."""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .ragged import Sets


def from_frame(frame: Any, by: str | Sequence[str], columns: Sequence[str] | None, weights: str | None) -> Sets:
    """See `Sets.from_frame`."""
    keys = [by] if isinstance(by, str) else list(by)
    features = list(columns) if columns is not None else [c for c in frame.columns if c not in keys and c != weights]
    values, offsets, rows = gather_frame(frame, keys, features, *([weights] if weights else []))
    flat = torch.from_numpy(_numbers(frame, weights)[rows]).to(torch.get_default_dtype()) if weights else None
    return Sets(torch.from_numpy(values).to(torch.get_default_dtype()), offsets, weights=flat)


def gather_frame(
    frame: Any, keys: list[str], features: list[str], *others: str
) -> tuple[np.ndarray, torch.Tensor, np.ndarray]:
    """The features (N, D) with the rows of a set together, the offsets of the sets, and the row of each member."""
    names = list(frame.columns)
    known = ", ".join(map(str, names))
    for name in [*keys, *features, *others]:
        if name not in names:
            raise ValueError(f"the table has no column {name!r}; it has: {known}.")
    if not keys:
        raise ValueError(f"by names no column, so the rows cannot be told apart in sets; the table has: {known}.")
    if not features:
        raise ValueError(f"no feature columns are left beside {', '.join(map(str, keys))}; the table has: {known}.")
    if len(frame) == 0:
        raise ValueError("the table has no rows, so there are no sets.")
    order, sizes = group_rows([_column(frame, key) for key in keys], keys)
    values = np.stack([_numbers(frame, name)[order] for name in features], axis=1)
    return values, torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)])), order


def group_rows(keys: list[np.ndarray], names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers that bring rows of equal keys together (groups and rows in order of appearance), and group sizes."""
    codes = np.zeros(len(keys[0]), dtype=np.int64)
    for key, name in zip(keys, names, strict=True):
        missing = _missing(key)
        if missing.any():
            raise ValueError(f"row {int(missing.argmax())} has no value in the set column {name!r}.")
        code = _codes(key)
        _, codes = np.unique(codes * (int(code.max()) + 1) + code, return_inverse=True)
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    appearance = np.empty(len(first), dtype=np.int64)
    appearance[np.argsort(first)] = np.arange(len(first))
    groups = appearance[inverse]
    return np.argsort(groups, kind="stable"), np.bincount(groups)


def _codes(key: np.ndarray) -> np.ndarray:
    """Equal values get equal numbers. Objects need not be sortable: 1 and "1" are two sets."""
    if key.dtype.kind != "O":
        return np.unique(key, return_inverse=True)[1]
    seen: dict[Any, int] = {}
    return np.array([seen.setdefault(value, len(seen)) for value in key], dtype=np.int64)


def _missing(key: np.ndarray) -> np.ndarray:
    """None, NaN, NaT and pandas' NA: what is not equal to itself."""
    if key.dtype.kind == "O":
        same = [value is not None and value == value for value in key]  # noqa: PLR0124
        return np.array([not (isinstance(s, bool | np.bool_) and s) for s in same])
    return key != key  # noqa: PLR0124


def _column(frame: Any, name: str) -> np.ndarray:
    return np.asarray(frame[name].to_numpy())


def _numbers(frame: Any, name: str) -> np.ndarray:
    column = _column(frame, name)
    if column.dtype.kind not in "biuf":
        bad = next(((i, v) for i, v in enumerate(column) if not _is_number(v)), None)
        if bad is not None:
            raise ValueError(
                f"column {name!r} must hold numbers, but row {bad[0]} is {str(bad[1])!r}. "
                "Choose the feature columns with columns=[…]."
            )
    return column.astype(np.float64)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number | decimal.Decimal)
