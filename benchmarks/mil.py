"""`SetClassifier()` with default settings on multiple-instance sets: 10-fold bag accuracy, 5 repeats.

Beside it a linear model on summary statistics of each bag (mean, max, min, std). Fold seeds 0-4; the defaults were
chosen with fold seeds from 100 on.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from deepsets.estimators import SetClassifier

from .results import data_folder, write

SEEDS = range(5)
PUBLISHED = {"musk1": 0.900, "elephant": 0.857, "fox": 0.603}  # gated attention MIL (Ilse et al., 2018)


def read(name: str) -> tuple[list[np.ndarray], np.ndarray]:
    """The bags and their labels."""
    file = np.load(data_folder() / "mil" / f"{name}.npz")
    return [file["X"][file["bag"] == bag] for bag in np.unique(file["bag"])], file["y"]


def summary(bags: list[np.ndarray]) -> np.ndarray:
    """(bags, 4 * features)."""
    return np.array([np.r_[x.mean(0), x.max(0), x.min(0), x.std(0)] for x in bags])


def calibration_error(chance: np.ndarray, y: np.ndarray) -> float:
    """Expected calibration error of the more probable class, 10 bins."""
    confidence, right = np.maximum(chance, 1 - chance), (chance > 0.5) == y
    bins = np.minimum((confidence * 10).astype(int), 9)
    return float(
        sum(abs(right[bins == b].mean() - confidence[bins == b].mean()) * (bins == b).mean() for b in set(bins))
    )


def repeat(bags: list[np.ndarray], y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Out-of-fold probabilities of the positive class: ours, and the linear model's."""
    ours, linear = np.zeros(len(y)), np.zeros(len(y))
    table = summary(bags)
    for train, test in StratifiedKFold(10, shuffle=True, random_state=seed).split(table, y):
        model = SetClassifier(random_state=seed).fit([bags[i] for i in train], y[train])
        ours[test] = model.predict_proba([bags[i] for i in test])[:, 1]
        plain = make_pipeline(StandardScaler(), LogisticRegression(C=0.03, max_iter=2000)).fit(table[train], y[train])
        linear[test] = plain.predict_proba(table[test])[:, 1]
    return ours, linear


def run() -> list[dict[str, object]]:
    torch.set_num_threads(1)  # these networks are small: a second thread only waits
    rows: list[dict[str, object]] = []
    for name, published in PUBLISHED.items():
        bags, y = read(name)
        y = (y == y.max()).astype(int)
        start = time.perf_counter()
        found = [repeat(bags, y, seed) for seed in SEEDS]
        seconds = (time.perf_counter() - start) / (10 * len(found))
        for method, chances in zip(("SetClassifier()", "linear on summaries"), zip(*found, strict=True), strict=True):
            accuracy = [float(((chance > 0.5) == y).mean()) for chance in chances]
            rows.append(
                {
                    "data": name,
                    "method": method,
                    "accuracy": float(np.mean(accuracy)),
                    "std": float(np.std(accuracy)),
                    "ece": float(np.mean([calibration_error(chance, y) for chance in chances])),
                    "published gated attention": published,
                    "seconds per fold": seconds,
                }
            )
    write(
        "mil", rows, data="musk1, elephant, fox", seeds=list(SEEDS), protocol="stratified 10-fold, 5 repeats, defaults"
    )
    return rows
