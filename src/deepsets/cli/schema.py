"""What a table holds, as it was understood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..io.columns import Columns
from ..io.storage import arrow
from ..io.table_sets import TableSets
from ..sets import Sets


def overview(path: Path, sizes: np.ndarray, task: str) -> dict[str, Any]:
    """Facts about a table as a whole."""
    return {
        "table": str(path),
        "sets": len(sizes),
        "members": int(sizes.sum()),
        "sizes": {"min": int(sizes.min()), "median": float(np.median(sizes)), "max": int(sizes.max())},
        "task": task,
    }


def describe(sets: TableSets, columns: Columns) -> list[dict[str, Any]]:
    """Describe each column: its role, its kind, its values and how many are missing."""
    found = [(columns.by, "set", sets.ids)] if columns.by is not None else []
    found += [(name, "feature", column) for name, column in _features(sets, columns)]
    for i, name in enumerate(columns.z):
        found.append((name, "z", sets.z[:, i] if isinstance(sets.z, np.ndarray) else sets.z[name].combine_chunks()))
    found += [(name, "target", column) for name, column in zip(columns.target, sets.targets, strict=True)]
    keys = ("kind", "values", "missing")
    return [
        {"column": name, "role": role} | dict(zip(keys, _describe(column), strict=True)) for name, role, column in found
    ]


def _features(sets: TableSets, columns: Columns) -> list[tuple[str, Any]]:
    if isinstance(sets.X, Sets):
        return list(zip(columns.features, sets.X.values.numpy().T, strict=True))
    if isinstance(sets.X, list):
        return [(columns.features[0], arrow().array([token for tokens in sets.X for token in tokens]))]
    members = sets.X.flatten()
    return [(field.name, members.field(i)) for i, field in enumerate(members.type)]


def _describe(column: Any) -> tuple[str, str, int]:
    """Kind, values and number of missing values."""
    pa = arrow()
    if isinstance(column, np.ndarray):
        column = pa.array(column, from_pandas=True)  # NaN is missing
    kind, known, types = column.type, column.drop_null(), pa.types
    missing = column.null_count
    if types.is_boolean(kind):
        return "boolean", f"{known.true_count:,} true, {known.false_count:,} false", missing
    if types.is_string(kind) or types.is_large_string(kind):
        counts = sorted(known.value_counts().to_pylist(), key=lambda c: -c["counts"])
        first = ", ".join(str(c["values"])[:20] for c in counts[:3])
        return "text", f"{len(counts):,} different: {first}" + ("…" if len(counts) > 3 else ""), missing
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    name = "number" if number else "empty" if types.is_null(kind) else "date or time"
    if not len(known):
        return name, "–", missing
    ends = pa.compute.min_max(known).as_py().values()
    if not number:
        return name, " to ".join(map(str, ends)), missing
    return name, " to ".join(f"{end:.6g}" for end in ends) + f", {len(known.unique()):,} different", missing
