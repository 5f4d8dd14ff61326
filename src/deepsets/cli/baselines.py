"""Baselines to read scores against: the most frequent class or the mean, and boosting on summaries."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..io.storage import arrow
from ..io.table_sets import TableSets

MEMBERS = 200_000  # at most, for the baselines
_WORDS = 50  # values of a text column that get an indicator


def constant(y: np.ndarray, classes: int | None) -> np.ndarray:
    """Predict the shares of the classes, or the mean, of the targets themselves."""
    if classes is None:
        return np.broadcast_to(y.mean(0), y.shape)
    return np.broadcast_to(np.bincount(y, minlength=classes) / len(y), (len(y), classes))


def boosting(X: np.ndarray, y: np.ndarray, classes: int | None, groups: np.ndarray | None = None) -> np.ndarray:
    """Predict by gradient boosting, out of fold.

    `y` holds codes of classes, or numbers (n, targets); rows of one group, the members of a set, are never split.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.model_selection import GroupKFold

    groups = np.arange(len(y)) if groups is None else groups
    out = np.zeros((len(y), y.shape[1] if classes is None else classes))
    for fit, held in GroupKFold(5, shuffle=True, random_state=0).split(X, groups=groups):
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
    """Summarise each set: count, and mean, deviation, minimum and maximum of every feature; z beside them."""
    import pandas as pd

    sets = np.repeat(np.arange(len(part)), part.sizes)
    groups = pd.DataFrame(member_matrix(part)).groupby(sets)
    each = [groups.mean(), groups.std(ddof=0), groups.min(), groups.max()]
    found = np.stack([frame.reindex(range(len(part))).to_numpy() for frame in each], axis=2)
    z = [] if part.z is None else [_as_numbers(part.z[name].combine_chunks()) for name in part.z.column_names]
    return np.concatenate([part.sizes[:, None], found.reshape(len(part), -1), *z], axis=1)


def member_matrix(part: TableSets) -> np.ndarray:
    """Return the features of all members as numbers: text as indicators of its most frequent values."""
    members = part.X.flatten()
    return np.concatenate([_as_numbers(members.field(i)) for i in range(members.type.num_fields)], axis=1)


def _as_numbers(column: Any) -> np.ndarray:
    pa = arrow()
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        encoded = column.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        counts = np.bincount(codes[codes >= 0], minlength=len(encoded.dictionary))
        return (codes[:, None] == np.argsort(-counts, kind="stable")[:_WORDS]).astype(float)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        column = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    elif pa.types.is_time(kind) or pa.types.is_duration(kind):
        column = column.cast(pa.int64() if kind.bit_width == 64 else pa.int32())
    return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)[:, None]
