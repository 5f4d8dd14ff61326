"""What users bring as y, and answers in the form of X."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..sets import Sets, is_missing
from ..train import Batch
from .input import Read


def per_member(values: np.ndarray, given: Read, sets: Sets) -> Any:
    """Answers for members in the form of X: a list of arrays, or one array in the order of a table's rows."""
    if given.rows is None:
        return np.split(values, sets.offsets[1:-1].tolist())
    out = np.empty_like(values)
    out[given.rows] = values
    return out


def one_per_set(y: Any, given: Read, what: str) -> np.ndarray:
    """Targets of sets as an array of B rows; a column of a table must not change within a set."""
    sets = given.sets
    assert sets is not None
    if y is None:
        raise ValueError("y is needed: one target for each set.")
    y = np.asarray(y)
    if given.rows is not None and len(y) == sets.total and len(y) != len(sets):
        rows, starts = y[given.rows], sets.offsets[:-1].numpy()
        firsts = np.repeat(rows[starts], sets.sizes.numpy(), axis=0)
        same = (rows == firsts) | ((rows != rows) & (firsts != firsts))  # noqa: PLR0124  # NaN all through is no change
        if not np.all(same):
            bad = int(sets.set_ids[int(np.argmin(same if same.ndim == 1 else same.all(1)))])
            raise ValueError(
                f"the {what} must be one for each set, but it changes within set {bad} of the table. "
                "For targets of members use MemberRegressor or MemberClassifier."
            )
        y = rows[starts]
    if len(y) != len(sets):
        raise ValueError(f"there are {len(sets)} sets, but y has {len(y)} entries.")
    return y


def _is_number(value: Any) -> bool:
    try:
        np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return True


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


def check_outputs(found: int, wanted: int, *, first: bool) -> None:
    """Later targets have as many columns as the first."""
    if not first and found != wanted:
        raise ValueError(f"y has {found} columns, but the estimator was fitted with {wanted}.")


def codes(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Labels to their numbers in `classes`."""
    places = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
    unknown = classes[places] != labels
    if unknown.any():
        raise ValueError(
            f"the class {labels[unknown].tolist()[0]!r} is new; known are {', '.join(map(repr, classes.tolist()))}."
        )
    return places


def check_classes(classes: np.ndarray, numbers: Tensor) -> None:
    """Two classes at least; one that is seen once is worth a warning."""
    if len(classes) < 2:
        raise ValueError(f"a classifier needs at least two classes, found one: {classes.tolist()[0]!r}.")
    counts = torch.bincount(numbers[numbers >= 0].reshape(-1), minlength=len(classes))
    once = [classes.tolist()[i] for i in (counts == 1).nonzero().squeeze(1).tolist()]
    if once:
        warnings.warn(
            f"the class {once[0]!r} is seen once: a single example teaches little.", UserWarning, stacklevel=4
        )


def weighed(errors: Tensor, batch: Batch) -> tuple[Tensor, Tensor | float]:
    if batch.weight is None:
        return errors.sum(), float(len(errors))
    return (errors * batch.weight).sum(), batch.weight.sum()
