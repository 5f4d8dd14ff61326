"""What a table holds, as it was understood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..io import Columns, TableSets, arrow
from ..sets import Sets


def overview(path: Path, sets: TableSets, task: str) -> dict[str, Any]:
    """Return the facts about a table as a whole.

    Parameters
    ----------
    path : Path
        The table.
    sets : TableSets
        Its sets.
    task : str
        The task.
    """
    sizes = sets.sizes
    return {
        "table": str(path),
        "sets": len(sets),
        "members": int(sizes.sum()),
        "sizes": {"min": int(sizes.min()), "median": float(np.median(sizes)), "max": int(sizes.max())},
        "labelled": int(min(len(t) - t.null_count for t in sets.targets)),
        "task": task,
    }


def describe(sets: TableSets, columns: Columns) -> list[dict[str, Any]]:
    """Describe each column: its role, its kind, its values and how many are missing.

    Parameters
    ----------
    sets : TableSets
        The sets of a table.
    columns : Columns
        Roles of its columns.
    """
    out = []
    if columns.by is not None:
        out.append(_row(columns.by, "set", sets.ids))
    for name, column in _features(sets, columns):
        out.append(_row(name, "feature", column))
    if columns.z:
        table = sets.z if hasattr(sets.z, "column_names") else None
        for i, name in enumerate(columns.z):
            out.append(_row(name, "z", sets.z[:, i] if table is None else table[name].combine_chunks()))
    for name, column in zip(columns.target, sets.targets, strict=True):
        out.append(_row(name, "target", column))
    return out


def _features(sets: TableSets, columns: Columns) -> list[tuple[str, Any]]:
    if isinstance(sets.X, Sets):
        values = sets.X.values.numpy()
        return [(name, values[:, i]) for i, name in enumerate(columns.features)]
    if isinstance(sets.X, list):
        return [(columns.features[0], arrow().array([token for tokens in sets.X for token in tokens]))]
    members = sets.X.flatten()
    return [(field.name, members.field(i)) for i, field in enumerate(members.type)]


def _row(name: str, role: str, column: Any) -> dict[str, Any]:
    kind, values, missing = _numbers(column) if isinstance(column, np.ndarray) else _arrow(column)
    return {"column": name, "role": role, "kind": kind, "values": values, "missing": missing}


def _numbers(column: np.ndarray) -> tuple[str, str, int]:
    known = column[~np.isnan(column)]
    return "number", f"{known.min():.4g} to {known.max():.4g}" if len(known) else "–", int(len(column) - len(known))


def _arrow(column: Any) -> tuple[str, str, int]:
    pa = arrow()
    kind, known = column.type, column.drop_null()
    types = pa.types
    if types.is_boolean(kind):
        return "boolean", f"{known.true_count:,} true, {known.false_count:,} false", column.null_count
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        distinct = len(known.unique())
        ends = pa.compute.min_max(known).as_py()
        text = f"{ends['min']:.6g} to {ends['max']:.6g}, {distinct:,} different" if len(known) else "–"
        return "number", text, column.null_count
    if types.is_string(kind) or types.is_large_string(kind):
        counts = sorted(known.value_counts().to_pylist(), key=lambda c: -c["counts"])
        first = ", ".join(str(c["values"])[:20] for c in counts[:3])
        return "text", f"{len(counts):,} different: {first}" + ("…" if len(counts) > 3 else ""), column.null_count
    if types.is_null(kind):
        return "empty", "–", column.null_count
    ends = pa.compute.min_max(known).as_py() if len(known) else {"min": "–", "max": "–"}
    return "date or time", f"{ends['min']} to {ends['max']}", column.null_count
