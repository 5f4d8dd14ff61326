"""What users give as y, and answers in the form of X."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ..sets.tables import is_missing
from .columns import Columns, as_objects, column_names, plain_column
from .layout import Members


def target_column(X: Any, y: Any) -> Any:
    """The column of the table X that `y` names, several columns side by side for a list of names; otherwise y."""
    names = target_names(X, y)
    if names is None:
        return y
    table = X.obs if hasattr(X, "obs") else X
    if not hasattr(table, "columns") and not hasattr(table, "column_names"):
        raise ValueError(f"y is the name {y!r}, but X is not a table with columns: give the targets themselves.")
    known = column_names(table)
    for name in names:
        if name not in known:
            raise ValueError(f"the table has no target column {name!r}; it has: {', '.join(map(str, known))}.")
    columns = [plain_column(table, name) for name in names]
    return columns[0] if isinstance(y, str) else np.stack(columns, axis=1)


def target_names(X: Any, y: Any) -> list[str] | None:
    """Names of target columns in `y`, if it holds names."""
    if isinstance(y, str):
        return [y]
    if isinstance(y, list | tuple) and y and all(isinstance(name, str) for name in y):
        table = X.obs if hasattr(X, "obs") else X
        if (hasattr(table, "columns") or hasattr(table, "column_names")) and set(y) <= set(column_names(table)):
            return list(y)
    return None


def warn_of_target(X: Any, y: Any, members: Members, features: Any) -> None:
    """Warn where y is a column of the table X that is among the features too."""
    name = getattr(y, "name", None)
    if name is None or name not in features or members.owners is None:
        return
    column, values = plain_column(X, name), np.asarray(y)
    values = values[members.owners] if len(values) == len(members) else values
    if len(values) == len(column) and bool(np.all(values == column)):
        warnings.warn(
            f"y is the column {name!r} of X, which is a feature too: the model would learn from its own target. "
            f"Give y={name!r}, which leaves the column out of the features, or drop it from X.",
            UserWarning,
            stacklevel=4,
        )


def per_member(values: np.ndarray, members: Members) -> Any:
    """Answers for members in the form of X: a list of arrays, or one array in the order of a table's rows."""
    if members.rows is None:
        return np.split(values, members.offsets[1:-1])
    out = np.empty_like(values)
    out[members.rows] = values
    return out


def one_per_set(y: Any, members: Members, what: str) -> np.ndarray:
    """Targets as an array of B rows; a column of a table must not change within a set."""
    if y is None:
        raise ValueError("y is needed: one target for each set; it requires y to be passed, but the target y is None.")
    if isinstance(y, list | tuple) and len({len(v) for v in y if isinstance(v, list | tuple | set | np.ndarray)}) > 1:
        y = as_objects([list(v) for v in y])
    if isinstance(y, list | tuple) and len({isinstance(v, str) for v in y}) > 1:
        y = np.array(y, dtype=object)  # NumPy would turn numbers beside strings into strings
    if isinstance(y, np.ma.MaskedArray) and np.ma.is_masked(y):
        raise ValueError(f"y is masked at {int(np.ma.getmaskarray(y).sum())} places: leave out these sets.")
    y = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    if y.dtype.kind == "c":
        raise ValueError("y holds complex numbers: give the real and the imaginary part as two targets.")
    if y.ndim == 0:
        raise ValueError(f"y is a single value ({y.item()!r}); wanted one target for each of the {len(members)} sets.")
    if members.owners is not None and len(y) == len(members.owners) and len(y) != len(members):
        first = y[np.unique(members.owners, return_index=True)[1]]
        wanted = first[members.owners]
        same = (y == wanted) | ((y != y) & (wanted != wanted))  # noqa: PLR0124  # NaN throughout is no change
        if not np.all(same):
            bad = int(members.owners[~(same if same.ndim == 1 else same.all(1))].min())
            raise ValueError(
                f"the {what} must be one for each set, but it changes within set {bad} of the table. "
                "For targets of members use MemberRegressor or MemberClassifier."
            )
        y = first
    if len(y) != len(members):
        raise ValueError(f"there are {len(members)} sets, but y has {len(y)} entries.")
    return y


def _is_number(value: Any) -> bool:
    try:
        return np.asarray(value, dtype=np.float64).ndim == 0
    except (TypeError, ValueError):
        return False


def as_numbers(y: np.ndarray, of_what: str) -> np.ndarray:
    """Targets as doubles; None and NA become NaN."""
    if y.dtype == object and y.ndim == 1:
        y = np.where(is_missing(y), np.nan, y)
    try:
        return y.astype(np.float64)
    except (TypeError, ValueError):
        bad = next((i, v) for i, v in enumerate(y.tolist()) if not _is_number(v))
        raise ValueError(
            f"the target must be a number, but that of {of_what} {bad[0]} is {bad[1]!r}. For labels use a classifier."
        ) from None


def check_finite_targets(values: np.ndarray, of_what: str = "set") -> None:
    """Refuse targets that are not finite."""
    flat = values.reshape(len(values), -1)
    if not np.isfinite(flat).all():
        bad = int(np.isfinite(flat).all(1).argmin())
        raise ValueError(f"the target of {of_what} {bad} is not a finite number: {values[bad]}.")


def check_values(values: np.ndarray, of_what: str) -> None:
    """Refuse targets that are not finite or do not vary."""
    check_finite_targets(values, of_what)
    flat = values.reshape(len(values), -1)
    constant = (flat == flat[:1]).all(0)
    if constant.any():
        value = float(flat[0, int(constant.argmax())])
        raise ValueError(f"the target is constant ({value} in all {len(flat)} {of_what}s): nothing can be learned.")


def check_outputs(found: int, wanted: int) -> None:
    """Later targets have as many columns as the first."""
    if found != wanted:
        raise ValueError(f"y has {found} columns, but the estimator was fitted with {wanted}.")


def class_labels(labels: np.ndarray, of_what: str) -> np.ndarray:
    """One label per set or member, as an array of one type."""
    if labels.ndim != 1:
        raise ValueError(f"y must be one label for each {of_what}, found shape {labels.shape}.")
    if (
        labels.dtype.kind == "f"
        and len(labels)
        and not (labels == np.round(labels)).all()
        and not np.isnan(labels).any()
    ):
        raise ValueError(
            f"Unknown label type: y holds fractions such as {labels[labels != np.round(labels)][0]}. "
            "For numbers use SetRegressor or MemberRegressor."
        )
    kinds = {type(v.item() if isinstance(v, np.generic) else v) for v in labels[:100_000]}
    if len(kinds) > 1 and any(k is str for k in kinds):
        raise ValueError(
            f"y mixes labels of different types ({', '.join(sorted(k.__name__ for k in kinds))}): convert them to one."
        )
    return np.array(labels.tolist()) if labels.dtype == object else labels


def find_classes(labels: np.ndarray) -> np.ndarray:
    """Sorted classes; at least two, and a warning for one that occurs once."""
    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < 2:
        raise ValueError(f"a classifier needs at least two classes, found one class: {classes.tolist()[0]!r}.")
    if (counts == 1).any():
        warnings.warn(
            f"the class {classes[counts == 1].tolist()[0]!r} is seen once: a single example teaches little.",
            UserWarning,
            stacklevel=4,
        )
    return classes


def codes(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Labels to their numbers in `classes`."""
    places = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
    unknown = classes[places] != labels
    if unknown.any():
        raise ValueError(
            f"the class {labels[unknown].tolist()[0]!r} is new; known are {', '.join(map(repr, classes.tolist()))}."
        )
    return places


def set_weights(weight: Any, count: int) -> np.ndarray | None:
    """Weights of sets, not below 0 and not all 0."""
    if weight is None:
        return None
    out = np.asarray(weight, dtype=np.float64)
    if out.shape != (count,) or not (out >= 0).all():
        raise ValueError(f"sample_weight must be {count} numbers not below 0, one per set; found shape {out.shape}.")
    if not (out > 0).any():
        raise ValueError("sample_weight is zero for all sets: there is nothing to learn from.")
    return out


def present(members: Members, set_level: Columns | None, y: Any, sample_weight: Any) -> Any:
    """Without the sets of weight 0, which count as absent in what is learned of y too; the weights."""
    weight = set_weights(sample_weight, len(members))
    if weight is None or (weight > 0).all():
        return members, set_level, y, weight
    y, rows = one_per_set(y, members, "target"), np.flatnonzero(weight > 0)
    return members.take(rows), None if set_level is None else set_level.take(rows), y[rows], weight[rows]
