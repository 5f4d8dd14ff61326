"""Blending of heads by out-of-fold predictions; calibration and intervals from the same predictions."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from sklearn.model_selection import KFold, StratifiedKFold

from .task import Task, sharpen

Folds = list[tuple[np.ndarray, np.ndarray]]


def make_folds(task: Task, count: int, seed: int) -> Folds:
    """(seen, held out) rows of each fold, stratified by class; many sets are held out once, a fifth of them."""
    sets = len(task.y)
    if task.kind == "classes":
        rarest = int(np.bincount(task.y, minlength=task.outputs).min())
        if rarest >= 2:
            count = min(count, max(2, rarest)) if count > 1 else count
        strata = task.y
    else:
        strata = np.zeros(sets, dtype=int)
    parts = max(2, min(count if count > 1 else 5, sets))
    if task.kind == "classes" and np.bincount(strata)[np.unique(strata)].min() >= parts:
        split = StratifiedKFold(parts, shuffle=True, random_state=seed).split(strata, strata)
    elif task.kind == "classes":
        split = _spread(strata, parts, seed)
    else:
        split = KFold(parts, shuffle=True, random_state=seed).split(strata)
    folds = [(seen, held) for seen, held in split]
    return folds if count > 1 else folds[:1]


def _spread(strata: np.ndarray, parts: int, seed: int) -> Folds:
    """Folds for classes rarer than the number of folds: members of a class go to different folds in turn."""
    order = np.random.default_rng(seed).permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    fold = np.empty(len(strata), dtype=int)
    fold[order] = np.arange(len(strata)) % parts
    rows = np.arange(len(strata))
    return [(rows[fold != k], rows[fold == k]) for k in range(parts)]


def blend_weights(answers: list[np.ndarray], task: Task, weight: np.ndarray | None, least: float = 0.03) -> np.ndarray:
    """Non-negative weights of held-out answers (n, outputs) that sum to 1 and minimise the loss of the weighted mean.

    A weight below `least` becomes 0. A weak pull to equal weights, worth two sets, keeps few sets from choosing by
    chance.
    """
    if len(answers) == 1:
        return np.ones(1)
    stacked = np.stack(answers)
    row_weight = np.ones(len(task.y)) if weight is None else weight / weight.mean()

    def loss(w: np.ndarray) -> float:
        found = np.tensordot(w / w.sum(), stacked, axes=1)
        pull = 2.0 * np.square(w / w.sum() - 1 / len(w)).sum()
        return float((task.loss(found) * row_weight).sum() + pull) / len(row_weight)

    count = len(answers)
    starts = [np.full(count, 1 / count), *(np.eye(count) * 0.9 + 0.1 / count)]
    results = [
        minimize(loss, start, bounds=[(1e-6, 1)] * count, method="L-BFGS-B", options={"maxiter": 60})
        for start in sorted(starts, key=loss)[:2]
    ]
    best = min(results, key=lambda r: r.fun).x
    best = best / best.sum()
    best[best < least] = 0
    return best / best.sum()


def fit_temperature(answers: np.ndarray, task: Task) -> float:
    """Temperature that minimises the held-out loss of blended probabilities; between 1/3 and 3."""
    if task.kind == "regression" or len(task.y) < 20:
        return 1.0
    found = minimize_scalar(
        lambda t: float(task.loss(sharpen(answers, np.exp(t), task.kind)).sum() + 2.0 * t * t),
        bounds=(-1.1, 1.1),
        method="bounded",
    )
    return float(np.exp(found.x))


def calibration_error(chance: np.ndarray, y: np.ndarray, bins: int = 10) -> float:
    """Expected calibration error of the most probable class: mean gap between confidence and accuracy over bins."""
    confidence, right = chance.max(1), chance.argmax(1) == y
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [abs(confidence[place == b].mean() - right[place == b].mean()) * (place == b).mean() for b in set(place)]
    return float(sum(gaps))


def residual_quantiles(errors: np.ndarray, most: int = 1001) -> np.ndarray:
    """Sorted absolute held-out errors, (n, outputs); at most `most` evenly spaced ones."""
    ordered = np.sort(np.abs(errors), axis=0)
    if len(ordered) <= most:
        return ordered
    return ordered[np.ceil(np.linspace(0, len(ordered) - 1, most)).astype(int)]


def conformal_radius(quantiles: np.ndarray, coverage: float) -> np.ndarray:
    """(outputs,) half-width of an interval that covers new targets with at least this probability."""
    count = len(quantiles)
    rank = int(np.ceil((count + 1) * coverage)) - 1
    return quantiles[rank] if rank < count else np.full(quantiles.shape[1], np.inf)
