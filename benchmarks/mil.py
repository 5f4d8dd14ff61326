"""`SetClassifier()` with default settings on multiple-instance sets: 10-fold bag accuracy, 5 repeats.

Beside it a linear model on summary statistics of each bag (mean, max, min, std). Fold seeds 0-4; the defaults were
chosen with fold seeds from 100 on. Finished folds are kept in results/.tables.
"""

from __future__ import annotations

import json
import time

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from deepsets.estimators import SetClassifier

from .results import RESULTS, data_folder, write

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


def repeat(name: str, bags: list[np.ndarray], y: np.ndarray, seed: int) -> dict[str, list[float]]:
    """Out-of-fold probabilities of the positive class and CPU seconds of the fits, kept fold by fold."""
    file = RESULTS / ".tables" / f"mil_{name}_{seed}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    empty: dict[str, list[float]] = {"ours": [0.0] * len(y), "linear": [0.0] * len(y), "seconds": []}
    found = json.loads(file.read_text()) if file.exists() else empty
    table = summary(bags)
    folds = list(StratifiedKFold(10, shuffle=True, random_state=seed).split(table, y))
    for train, test in folds[len(found["seconds"]) :]:
        start = time.process_time()
        model = SetClassifier(random_state=seed).fit([bags[i] for i in train], y[train])
        found["seconds"].append(time.process_time() - start)
        plain = make_pipeline(StandardScaler(), LogisticRegression(C=0.03, max_iter=2000)).fit(table[train], y[train])
        ours, linear = model.predict_proba([bags[i] for i in test])[:, 1], plain.predict_proba(table[test])[:, 1]
        for i, a, b in zip(test.tolist(), ours.tolist(), linear.tolist(), strict=True):
            found["ours"][i], found["linear"][i] = a, b
        file.write_text(json.dumps(found))
    return found


def run() -> list[dict[str, object]]:
    torch.set_num_threads(1)  # these networks are small: a second thread only waits
    rows: list[dict[str, object]] = []
    for name, published in PUBLISHED.items():
        bags, y = read(name)
        y = (y == y.max()).astype(int)
        found = [repeat(name, bags, y, seed) for seed in SEEDS]
        seconds = float(np.mean([each["seconds"] for each in found]))
        for method, key in (("SetClassifier()", "ours"), ("linear on summaries", "linear")):
            chances = [np.array(each[key]) for each in found]
            accuracy = [float(((chance > 0.5) == y).mean()) for chance in chances]
            row: dict[str, object] = {"data": name, "method": method, "accuracy": float(np.mean(accuracy))}
            row |= {"std": float(np.std(accuracy)), "ece": calibration_error(np.concatenate(chances), np.tile(y, 5))}
            row |= {"published gated attention": published}
            rows.append(row | ({"CPU seconds per fit": seconds} if key == "ours" else {}))
    write(
        "mil", rows, data="musk1, elephant, fox", seeds=list(SEEDS), protocol="stratified 10-fold, 5 repeats, defaults"
    )
    return rows
