"""What is to be learnt from a table: the task, guessed or told, and the target as its estimator wants it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..io import TableSets, numbers, same_within_sets

TASKS = {
    "set-regression": "SetRegressor",
    "set-classification": "SetClassifier",
    "member-regression": "MemberRegressor",
    "member-classification": "MemberClassifier",
    "odd-one-out": "OddOneOut",
}
EXPANSION = "expansion"  # has no target: it is told, never guessed
MOST_CLASSES = 10  # integers with more different values are taken as numbers


def guess(sets: TableSets) -> str:
    """A task of sets where no target changes within a set, otherwise of members; classes where it looks like them.

    Classes are strings, booleans, and integers of at most ten different values.
    """
    whole = sets.per_set or all(same_within_sets(target, sets.sizes) is None for target in sets.targets)
    classes = len(sets.targets) == 1 and _like_classes(sets.targets[0])
    return f"{'set' if whole else 'member'}-{'classification' if classes else 'regression'}"


def _like_classes(column: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        return False
    return not pa.types.is_integer(column.type) or len(column.unique().drop_null()) <= MOST_CLASSES


def check_target(task: str, sets: TableSets, names: list[str]) -> None:
    """What no estimator can learn from, said with the names of the table, before any training."""
    for column, name in zip(sets.targets, names, strict=True):
        found = column.unique().drop_null()
        if len(found) == 0:
            raise ValueError(f"the target {name!r} is missing in all rows: at least some must be labelled.")
        if len(found) == 1 and task != "odd-one-out":
            one = " (the table holds one set only)" if len(sets) == 1 else ""
            raise ValueError(
                f"the target {name!r} is constant, {found[0].as_py()!r} everywhere{one}: nothing to learn."
            )
    if len(sets) == 1 and not task.startswith("member"):
        raise ValueError(
            f"the table holds one set only ({sets.ids[0].as_py()!r}), but the task {task} needs several: "
            "is --by the right column?"
        )


def targets(task: str, sets: TableSets, names: list[str]) -> np.ndarray:
    """(B,) or (B, targets) for tasks of sets, (N,) or (N, targets) for those of members."""
    if task == "odd-one-out":
        return _places(sets, names[0])
    columns = sets.targets
    if task.startswith("set"):
        columns = [_one_per_set(column, sets, name) for column, name in zip(columns, names, strict=True)]
        for column, name in zip(columns, names, strict=True):
            if column.null_count:
                b = column.is_null().index(True).as_py()
                raise ValueError(
                    f"the target {name!r} of set {sets.ids[b].as_py()!r} is missing: drop such sets first."
                )
    elif sets.per_set:
        raise ValueError(f"the target {names[0]!r} has one value for each set: {task} wants one for each member.")
    if task.endswith("regression"):
        each = [numbers(column, name) for column, name in zip(columns, names, strict=True)]
        return each[0] if len(each) == 1 else np.stack(each, axis=1)
    if len(columns) > 1:
        raise ValueError(f"{task} takes one target, found {len(columns)}: {', '.join(names)}.")
    return np.array(columns[0].to_pylist(), dtype=object if columns[0].null_count else None)


def _one_per_set(column: Any, sets: TableSets, name: str) -> Any:
    if sets.per_set:
        return column
    bad = same_within_sets(column, sets.sizes)
    if bad is not None:
        raise ValueError(
            f"the target {name!r} must be one for each set, but it changes within set {sets.ids[bad].as_py()!r}: "
            "use a task of members."
        )
    if (sets.sizes == 0).any():
        raise ValueError(f"set {sets.ids[int((sets.sizes == 0).argmax())].as_py()!r} is empty, so it has no {name!r}.")
    return column.take(_array(np.cumsum(sets.sizes) - sets.sizes))


def _places(sets: TableSets, name: str) -> np.ndarray:
    """The place of the odd member: as it stands in the table, or where the one mark of each set is."""
    column = sets.targets[0]
    if column.null_count:
        raise ValueError(f"the target {name!r} is missing in row {column.is_null().index(True).as_py()}.")
    values = numbers(column, name).astype(np.int64)
    if sets.per_set or same_within_sets(column, sets.sizes) is None:
        return values if sets.per_set else values[np.cumsum(sets.sizes) - sets.sizes]
    set_ids = np.repeat(np.arange(len(sets)), sets.sizes)
    marks = np.bincount(set_ids, weights=values != 0, minlength=len(sets))
    if (marks != 1).any():
        b = int((marks != 1).argmax())
        raise ValueError(
            f"the target {name!r} marks {int(marks[b])} members of set {sets.ids[b].as_py()!r}: exactly one is wanted."
        )
    return np.flatnonzero(values) - (np.cumsum(sets.sizes) - sets.sizes)


def _array(values: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.array(values)
