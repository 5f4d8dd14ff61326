"""The task of a table and its targets, in the form that the estimators take."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..io.files import numbers
from ..io.model_folder import to_plain
from ..io.storage import arrow
from ..io.table_sets import TableSets, same_within_sets

MOST_CLASSES = 10  # integers with more different values are numbers


def guess_task(sets: TableSets) -> str:
    """Guess the task: per set if no target changes within a set; classes if the target looks like them.

    Classes are text, booleans, and integers with at most ten different values.
    """
    whole = sets.per_set or all(same_within_sets(target, sets.sizes) is None for target in sets.targets)
    classes = len(sets.targets) == 1 and _like_classes(sets.targets[0])
    return f"{'set' if whole else 'member'}-{'classification' if classes else 'regression'}"


def _like_classes(column: Any) -> bool:
    types = arrow().types
    if types.is_floating(column.type) or types.is_decimal(column.type):
        return False
    return not types.is_integer(column.type) or len(column.unique().drop_null()) <= MOST_CLASSES


def check_target(task: str, sets: TableSets, names: list[str]) -> None:
    """Raise an error, before any training, for targets that nothing can be learned from or that cannot be saved."""
    for column, name in zip(sets.targets, names, strict=True):
        found = column.unique().drop_null()
        if len(found) == 0:
            raise ValueError(f"the target {name!r} is missing in all rows: at least some must be labelled.")
        if len(found) == 1 and task != "odd-one-out":
            one = " (the table holds a single set)" if len(sets) == 1 else ""
            raise ValueError(
                f"the target {name!r} is constant, {found[0].as_py()!r} everywhere{one}: there is nothing to learn."
            )
        if task.endswith("classification"):
            to_plain(found.to_pylist(), f"the target {name!r}")
    if len(sets) == 1 and not task.startswith("member"):
        raise ValueError(
            f"the table holds a single set ({sets.ids[0].as_py()!r}), but the task {task} needs several: "
            "is --by the right column?"
        )


def targets(task: str, sets: TableSets, names: list[str]) -> np.ndarray:
    """Return the targets: (B,) or (B, targets) for tasks of sets, (N,) or (N, targets) for tasks of members."""
    if task == "odd-one-out":
        return _positions(sets, names[0])
    columns = sets.targets
    if task.startswith("set"):
        columns = [_one_per_set(column, sets, name) for column, name in zip(columns, names, strict=True)]
    elif sets.per_set:
        raise ValueError(f"the target {names[0]!r} has one value per set: {task} needs one per member.")
    if task.endswith("regression"):
        each = [numbers(column, name) for column, name in zip(columns, names, strict=True)]
        return each[0] if len(each) == 1 else np.stack(each, axis=1)
    if len(columns) > 1:
        raise ValueError(f"{task} takes one target, found {len(columns)}: {', '.join(names)}.")
    return np.array(columns[0].to_pylist(), dtype=object if columns[0].null_count else None)


def _one_per_set(column: Any, sets: TableSets, name: str) -> Any:
    if not sets.per_set:
        bad = same_within_sets(column, sets.sizes)
        if bad is not None:
            raise ValueError(
                f"the target {name!r} must have one value per set, but it changes within set "
                f"{sets.ids[bad].as_py()!r}: use a task of members."
            )
        if (sets.sizes == 0).any():
            empty = sets.ids[int((sets.sizes == 0).argmax())].as_py()
            raise ValueError(f"set {empty!r} is empty, so it has no {name!r}.")
        column = column.take(arrow().array(_starts(sets)))
    if column.null_count:
        b = column.is_null().index(True).as_py()
        raise ValueError(f"the target {name!r} of set {sets.ids[b].as_py()!r} is missing: drop such sets first.")
    return column


def _positions(sets: TableSets, name: str) -> np.ndarray:
    """The position of the odd member: as given in the table, or that of the one marked member of each set."""
    column = sets.targets[0]
    if column.null_count:
        raise ValueError(f"the target {name!r} is missing in row {column.is_null().index(True).as_py()}.")
    values = numbers(column, name).astype(np.int64)
    if sets.per_set:
        return values
    if same_within_sets(column, sets.sizes) is None:
        return values[_starts(sets)]
    marks = np.bincount(np.repeat(np.arange(len(sets)), sets.sizes), weights=values != 0, minlength=len(sets))
    if (marks != 1).any():
        b = int((marks != 1).argmax())
        raise ValueError(
            f"the target {name!r} marks {int(marks[b])} members of set {sets.ids[b].as_py()!r}: exactly one is needed."
        )
    return np.flatnonzero(values) - _starts(sets)


def _starts(sets: TableSets) -> np.ndarray:
    return np.cumsum(sets.sizes) - sets.sizes
