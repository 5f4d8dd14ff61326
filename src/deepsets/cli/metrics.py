"""Scores of predictions, and baselines to read them against: constants, and boosting on summaries."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..io.storage import arrow
from ..io.table_sets import TableSets

MEMBERS = 200_000  # at most, for the baselines
_WORDS = 50  # values of a text column that get an indicator


def class_codes(labels: list[Any], classes: np.ndarray) -> np.ndarray:
    """Return the position of each label among the classes of a model."""
    places = {label: i for i, label in enumerate(classes.tolist())}
    shown = next((label for label in labels if isinstance(label, str)), None)
    if classes.dtype.kind not in "USO" and shown is not None:
        raise ValueError(f"the targets are text such as {shown!r}, but the classes are {classes.tolist()}.")
    unknown = next((label for label in labels if label not in places), None)
    if unknown is not None:
        known = ", ".join(map(repr, classes.tolist()[:20]))
        raise ValueError(f"the class {unknown!r} is new; the model knows {known}.")
    return np.array([places[label] for label in labels], dtype=np.int64)


def class_scores(probabilities: np.ndarray, codes: np.ndarray) -> dict[str, float | None]:
    """Return accuracy, balanced accuracy, AUC, F1, log loss (nats) and expected calibration error (ECE).

    AUC and F1 are those of the second of two classes; for more classes, means over the classes that occur.
    """
    from sklearn import metrics

    classes, seen, found = np.arange(probabilities.shape[1]), np.unique(codes), probabilities.argmax(1)
    areas = [metrics.roc_auc_score(codes == c, probabilities[:, c]) for c in seen] if len(seen) > 1 else []
    labels = [1] if len(classes) == 2 else seen
    return {
        "accuracy": float(np.mean(found == codes)),
        "balanced_accuracy": float(metrics.recall_score(codes, found, labels=seen, average="macro")),
        "auc": float(np.mean(areas)) if areas else None,
        "f1": float(metrics.f1_score(codes, found, labels=labels, average="macro", zero_division=0.0)),
        "log_loss": float(metrics.log_loss(codes, probabilities, labels=classes)),
        "ece": calibration(probabilities, codes)[0],
    }


def calibration(probabilities: np.ndarray, codes: np.ndarray) -> tuple[float, list[dict[str, float]]]:
    """Return the expected calibration error, and for ten bins of confidence its mean, the accuracy and the count."""
    confidence, right = probabilities.max(1), probabilities.argmax(1) == codes
    places = np.minimum((confidence * 10).astype(int), 9)
    bins = []
    for here in (places == b for b in np.unique(places)):
        means = {"confidence": float(confidence[here].mean()), "accuracy": float(right[here].mean())}
        bins.append(means | {"count": int(here.sum())})
    error = sum(b["count"] * abs(b["confidence"] - b["accuracy"]) for b in bins) / len(codes)
    return float(error), bins


def number_scores(predicted: np.ndarray, wanted: np.ndarray) -> dict[str, float | None]:
    """Return R², root mean squared error and mean absolute error; for several targets their means."""
    from sklearn import metrics

    return {
        "r2": float(metrics.r2_score(wanted, predicted)) if len(wanted) > 1 else None,
        "rmse": float(np.sqrt(np.mean((predicted - wanted) ** 2))),
        "mae": float(np.abs(predicted - wanted).mean()),
    }


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
