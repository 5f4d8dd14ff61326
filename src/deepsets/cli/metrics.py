"""Scores of predictions."""

from __future__ import annotations

from typing import Any

import numpy as np


def class_codes(labels: list[Any], classes: np.ndarray) -> np.ndarray:
    """Return the position of each label among the classes of a model.

    Parameters
    ----------
    labels : list
        Labels of a table.
    classes : ndarray
        Classes of the model.
    """
    places = {label: i for i, label in enumerate(classes.tolist())}
    if classes.dtype.kind not in "USO" and any(isinstance(label, str) for label in labels):
        shown = next(label for label in labels if isinstance(label, str))
        raise ValueError(f"the targets are text such as {shown!r}, but the classes are {classes.tolist()}.")
    unknown = next((label for label in labels if label not in places), None)
    if unknown is not None:
        known = ", ".join(map(repr, classes.tolist()[:20]))
        raise ValueError(f"the class {unknown!r} is new; the model knows {known}.")
    return np.array([places[label] for label in labels], dtype=np.int64)


def class_scores(probabilities: np.ndarray, codes: np.ndarray) -> dict[str, float | None]:
    """Return accuracy, balanced accuracy, AUC, F1, log loss (nats) and expected calibration error.

    AUC and F1 are those of the second of two classes; for more classes, means over the classes that occur.

    Parameters
    ----------
    probabilities : ndarray of shape (n, classes)
        Predicted probabilities.
    codes : ndarray of shape (n,)
        True classes, as positions.
    """
    from sklearn import metrics

    classes = np.arange(probabilities.shape[1])
    found = probabilities.argmax(1)
    seen = np.unique(codes)
    areas = [metrics.roc_auc_score(codes == c, probabilities[:, c]) for c in seen] if len(seen) > 1 else []
    two = len(classes) == 2
    f1 = metrics.f1_score(codes, found, labels=[1] if two else seen, average="macro", zero_division=0.0)
    recalls = [float(np.mean(found[codes == c] == c)) for c in seen]
    return {
        "accuracy": float(np.mean(found == codes)),
        "balanced_accuracy": float(np.mean(recalls)),
        "auc": float(np.mean(areas)) if areas else None,
        "f1": float(f1),
        "log_loss": float(metrics.log_loss(codes, probabilities, labels=classes)),
        "ece": calibration(probabilities, codes)[0],
    }


def calibration(probabilities: np.ndarray, codes: np.ndarray) -> tuple[float, list[dict[str, float]]]:
    """Return the expected calibration error, and per bin of confidence its mean, the accuracy and the count.

    Parameters
    ----------
    probabilities : ndarray of shape (n, classes)
        Predicted probabilities.
    codes : ndarray of shape (n,)
        True classes, as positions.
    """
    confidence, right = probabilities.max(1), probabilities.argmax(1) == codes
    places = np.minimum((confidence * 10).astype(int), 9)
    bins = []
    for b in np.unique(places):
        here = places == b
        bins.append(
            {
                "confidence": float(confidence[here].mean()),
                "accuracy": float(right[here].mean()),
                "count": int(here.sum()),
            }
        )
    error = sum(b["count"] * abs(b["confidence"] - b["accuracy"]) for b in bins) / len(codes)
    return float(error), bins


def number_scores(predicted: np.ndarray, wanted: np.ndarray) -> dict[str, float | None]:
    """Return R², root mean squared error and mean absolute error; for several targets their means.

    Parameters
    ----------
    predicted, wanted : ndarray of shape (n, targets)
        Predictions and true values.
    """
    from sklearn import metrics

    return {
        "r2": float(metrics.r2_score(wanted, predicted)) if len(wanted) > 1 else None,
        "rmse": float(np.sqrt(np.mean((predicted - wanted) ** 2))),
        "mae": float(np.abs(predicted - wanted).mean()),
    }
