"""Scores of predictions."""

from __future__ import annotations

from typing import Any

import numpy as np


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
