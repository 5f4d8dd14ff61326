"""Tables of a fit: what they hold, the task, the targets, and sets of elements."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from ..io import TableError
from ..io.columns import Columns
from ..io.files import File, numbers
from ..io.model_folder import to_plain
from ..io.reader import Source
from ..io.storage import arrow
from ..io.table_sets import TableSets, one_per_set, same_within_sets, to_sets
from ..sets import Sets

MOST_CLASSES = 10  # integers with more different values are numbers


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
        column = one_per_set(column, name, sets.sizes, sets.ids)
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


def read_elements(path: Path, by: str | None, element: str | None) -> tuple[str, list[list[str]]]:
    """Return the column of the elements, and the sets as lists of text.

    A text file, or a CSV file without --by and --element, has one set per line and no header.
    """
    if path.suffix.lower() == ".txt" or (path.suffix.lower() == ".csv" and by is None and element is None):
        return "one set per line", _lines(path)
    source = Source(None, [path], by, features=[element] if element else None)
    shape, columns = source.shape, source.columns
    if len(columns.features) > 1:
        raise TableError(f"name the column of the elements with --element: {', '.join(columns.features)}.")
    name = columns.features[0]
    if shape.places[name][1] is not None:
        raise TableError(
            f"column {shape.places[name][0]!r} holds vectors: the elements of a set must be single values."
        )
    table = File(path, identifiers=[*([columns.by] if columns.by else []), name]).read(shape.inside(columns.all))
    if table.num_rows == 0:
        raise TableError(f"{path} has no rows, so there are no sets.")
    place = table.column_names.index(name)
    sets = to_sets(table.set_column(place, name, _text(table[name])), shape, columns).X
    if not isinstance(sets, list):
        raise TableError(f"column {name!r} has missing elements: drop these rows first.")
    return name, sets


def _text(column: Any) -> Any:
    """A column of single values, or of lists of them, as text."""
    pa = arrow()
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return column.cast(pa.large_list(pa.string()))
    return column.cast(pa.string())


def _lines(path: Path) -> list[list[str]]:
    """One set per line: separated by tabs where there are any, else by commas, else by blanks; quotes as in CSV."""
    if not path.is_file():
        raise ValueError(f"{path} {'is not a file' if path.exists() else 'does not exist'}.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8: {error}.") from None
    mark = next((mark for mark in "\t," if mark in text), " ")
    rows = csv.reader(text.splitlines(), delimiter=mark, skipinitialspace=True)
    sets = [[part.strip() for part in row if part.strip()] for row in rows]
    sets = [members for members in sets if members]
    if not sets:
        raise ValueError(f"{path} has no line with an element, so there are no sets.")
    first, *rest = sets
    table = path.suffix.lower() == ".csv" and len(rest) > 1 and {len(row) for row in sets} == {len(first)} != {1}
    if table and not set(first) & {member for row in rest for member in row}:
        raise ValueError(
            f"{path} looks like a table with the columns {', '.join(first)}, not like one set per line: name the "
            "column of the set with --by and that of its elements with --element, or give a .txt file of sets."
        )
    return sets
