"""What users bring as X, to sets: lists of arrays, 3-D arrays, Sets, Arrow list columns, frames with a set column."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from ..sets import Sets, group_frame


class Read(NamedTuple):
    """X as sets, and what is needed to answer in the form of X.

    sets: values may hold NaN here; tokens are not yet ids. tokens: the members, where they are not numbers.
    rows: for frames, the row of each member. names: for frames, the feature columns.
    """

    sets: Sets | None
    tokens: list[list[Any]] | None = None
    rows: np.ndarray | None = None
    names: list[str] | None = None


def read(X: Any, by: str | None, columns: list[str] | None, drop: str | None = None) -> Read:
    """Any X as sets. `drop`: a column of a frame that is no feature (the target)."""
    if isinstance(X, Sets):
        return _ids_or_numbers(X)
    if type(X).__module__.split(".")[0] == "pyarrow":
        return _read_arrow(X)
    if hasattr(X, "columns") and hasattr(X, "__getitem__"):
        if by is None:
            raise ValueError(
                "X is a table with a row for each member: say which column names the set, "
                f"for example SetClassifier(by='cluster_id'). Columns: {', '.join(map(str, X.columns))}."
            )
        names = columns or [c for c in X.columns if c not in (by, drop)]
        values, offsets, rows = group_frame(X, [by], names)
        return Read(
            Sets(torch.from_numpy(values).to(torch.get_default_dtype()), offsets, ensure_finite=False),
            None,
            rows,
            names,
        )
    if isinstance(X, np.ndarray) and X.dtype != object:
        if X.ndim != 3:
            raise ValueError(
                f"an array X must have the shape (sets, members, features), found {X.shape}: "
                "for sets of different sizes give a list of 2-D arrays."
            )
        X = list(X)
    X = list(X)
    if not X:
        raise ValueError("X holds no sets.")
    if not hasattr(X[0], "__iter__") or getattr(X[0], "ndim", 1) == 0:
        raise ValueError(f"X is a list of single values ({X[0]!r}, …); wanted a list of sets, an array each.")
    first = next((member for members in X for member in members), None)
    if isinstance(first, str) or (first is not None and np.asarray(first).ndim == 0 and _is_id(X)):
        return Read(None, [_plain(members, b) for b, members in enumerate(X)])
    return Read(_unchecked_list(X))


def _ids_or_numbers(sets: Sets) -> Read:
    """Plain integers are ids of discrete elements, as in a list."""
    if sets.values.ndim > 1 or sets.values.is_floating_point():
        return Read(sets)
    return Read(None, [members.tolist() for members in sets])


def _read_arrow(column: Any) -> Read:
    """A list column: of numbers, of fixed-size lists of numbers, or of tokens."""
    import pyarrow as pa

    if isinstance(column, pa.Table | pa.RecordBatch):
        raise ValueError(
            "X is an Arrow table: give its list column, table['members'], or table.to_pandas() with by=, the column "
            f"that names the set. Columns: {', '.join(column.column_names)}."
        )
    inner = getattr(column.type, "value_type", None)
    if inner is not None and (pa.types.is_string(inner) or pa.types.is_large_string(inner)):
        return Read(None, column.to_pylist())
    return _ids_or_numbers(Sets.from_arrow(column))


def _is_id(X: list[Any]) -> bool:
    """Plain integers in a list are ids of discrete elements; one number a member is written (n, 1)."""
    return all(np.asarray(members).dtype.kind in "iu" for members in X if len(members))


def _plain(members: Any, b: int) -> list[Any]:
    if isinstance(members, str):
        raise ValueError(f"set {b} is the string {members!r}; wanted a list of tokens.")
    return [m.item() if isinstance(m, np.generic | torch.Tensor) else m for m in members]


def _unchecked_list(arrays: list[Any]) -> Sets:
    """Like `Sets.from_list`, but NaN passes: the estimator imputes it, or refuses it in its own words."""
    return Sets.from_list(arrays, ensure_finite=False)
