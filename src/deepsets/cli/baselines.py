"""Baselines to read scores against: the most frequent class or the mean, and boosting on summaries."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..io import TableSets, arrow

MEMBERS = 200_000  # at most, for the baselines
_FOLDS = 5


def constant(y: np.ndarray, classes: int | None) -> np.ndarray:
    """Predict the shares of the classes, or the mean, of the targets themselves.

    Parameters
    ----------
    y : ndarray
        Codes of classes, or numbers (n, targets).
    classes : int or None
        Number of classes.
    """
    if classes is None:
        return np.broadcast_to(y.mean(0), y.shape)
    shares = np.bincount(y, minlength=classes) / len(y)
    return np.broadcast_to(shares, (len(y), classes))


def boosting(X: np.ndarray, y: np.ndarray, classes: int | None, groups: np.ndarray | None = None) -> np.ndarray:
    """Predict by gradient boosting, out of fold.

    Parameters
    ----------
    X : ndarray of shape (n, columns)
        Summaries of sets, or features of members beside those of their set.
    y : ndarray
        Codes of classes, or numbers (n, targets).
    classes : int or None
        Number of classes.
    groups : ndarray, optional
        Set of each row, for rows that are members: sets are never split.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.model_selection import GroupKFold, KFold

    rows = np.arange(len(y))
    split = KFold(_FOLDS, shuffle=True, random_state=0) if groups is None else GroupKFold(_FOLDS)
    out = np.zeros((len(y), classes if classes is not None else y.shape[1]))
    for fit, held in split.split(rows, groups=groups):
        if classes is None:
            for j in range(y.shape[1]):
                out[held, j] = HistGradientBoostingRegressor(random_state=0).fit(X[fit], y[fit, j]).predict(X[held])
        elif len(np.unique(y[fit])) == 1:
            out[held, y[fit][0]] = 1.0
        else:
            model = HistGradientBoostingClassifier(random_state=0).fit(X[fit], y[fit])
            out[np.ix_(held, model.classes_)] = model.predict_proba(X[held])
    return out


def summaries(part: TableSets) -> np.ndarray:
    """Summarise each set: count, and mean, deviation, minimum and maximum of every feature; z beside them.

    Text is described by the shares of its most frequent values.

    Parameters
    ----------
    part : TableSets
        The sets, with named X and z.
    """
    matrix = member_matrix(part)
    sets = np.repeat(np.arange(len(part)), part.sizes)
    columns: list[np.ndarray] = [part.sizes.astype(float)]
    for j in range(matrix.shape[1]):
        known = ~np.isnan(matrix[:, j])
        owner, values = sets[known], matrix[known, j]
        count = np.bincount(owner, minlength=len(part)).astype(float)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.bincount(owner, values, len(part)) / count
            spread = np.sqrt(np.maximum(np.bincount(owner, (values - mean[owner]) ** 2, len(part)) / count, 0))
        low, high = np.full(len(part), np.inf), np.full(len(part), -np.inf)
        np.minimum.at(low, owner, values)
        np.maximum.at(high, owner, values)
        columns += [mean, spread, np.where(count > 0, low, np.nan), np.where(count > 0, high, np.nan)]
    return np.stack([*columns, *_context(part)], axis=1)


def member_matrix(part: TableSets, words: int = 50) -> np.ndarray:
    """Return the features of all members as numbers: text as indicators of its most frequent values.

    Parameters
    ----------
    part : TableSets
        The sets.
    words : int, default=50
        How many values of a text column get an indicator.
    """
    members = part.X.flatten()
    columns = [members.field(i) for i in range(members.type.num_fields)]
    return np.stack([number for column in columns for number in _as_numbers(column, words)], axis=1)


def _context(part: TableSets) -> list[np.ndarray]:
    if part.z is None:
        return []
    return [number for name in part.z.column_names for number in _as_numbers(part.z[name].combine_chunks(), 50)]


def _as_numbers(column: Any, words: int) -> list[np.ndarray]:
    pa = arrow()
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        encoded = column.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        counts = np.bincount(codes[codes >= 0], minlength=len(encoded.dictionary))
        return [(codes == c).astype(float) for c in np.argsort(-counts, kind="stable")[:words]]
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        column = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    elif pa.types.is_time(kind) or pa.types.is_duration(kind):
        column = column.cast(pa.int64() if kind.bit_width == 64 else pa.int32())
    return [column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)]
