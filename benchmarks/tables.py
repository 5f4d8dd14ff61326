"""`SetClassifier()` and `SetRegressor()` against `groupby().agg()` and a model: same folds, one thread, CPU seconds.

Opponents on summaries (count, mean, std, min, max, missing shares, shares of frequent categories, set-level columns):
logistic or ridge regression with the regularisation chosen by cross-validation, a random forest, gradient boosting;
on token sets, logistic regression on the bag. Run as ``python -m benchmarks tables``; the environment variables TASKS
(comma-separated names) and FOLDS choose a part.
"""

from __future__ import annotations

import gzip
import json
import os
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeCV
from sklearn.metrics import accuracy_score, balanced_accuracy_score, r2_score
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from deepsets.estimators import SetClassifier, SetRegressor

from .mil import read
from .results import data_folder, write

MIL = ("musk1", "elephant", "fox", "corel_dogs", "protein", "ucsb_breast_cancer", "web_recommendation_1")


class Task(NamedTuple):
    """Sets as a list, or as a table with a column ``set``; y per set in order of appearance."""

    X: Any
    y: np.ndarray
    regression: bool = False
    z: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------------ data


def mil(name: str) -> Task:
    bags, y = read(name)
    return Task(bags, (y == y.max()).astype(int))


def flights(target: str) -> Task:
    import pandas as pd

    frame = pd.read_parquet(data_folder() / "flights" / "flights.parquet")
    y = frame.groupby("set", sort=False)[target].first().to_numpy()
    frame = frame.drop(columns=["rain", "visibility"])
    return Task(frame, y.astype(int) if target == "rain" else y, target != "rain", ("origin", "month"))


def trec() -> Task:
    with gzip.open(data_folder() / "trec" / "questions.jsonl.gz") as file:
        rows = [json.loads(line) for line in file]
    return Task([row["words"] for row in rows], np.array([row["class"] for row in rows]))


def splus() -> Task:
    """Mean redshift of a cluster from the photometry of its members."""
    from paper.datasets.galaxies import load_splus

    x, z, _, names = load_splus()
    clusters = [np.flatnonzero(names == name) for name in dict.fromkeys(names)]
    return Task([x[rows] for rows in clusters], np.array([z[rows].mean() for rows in clusters]), True)


def imbalance(sets: int = 1500, seed: int = 0) -> Task:
    """Mixed columns, gaps, about 19 % positive: the share of refunds among large orders decides."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 40, sets)
    ids = np.repeat(np.arange(sets), sizes)
    risk = rng.beta(1, 5, sets)
    frame = pd.DataFrame(
        {
            "set": [f"customer{i}" for i in ids],
            "amount": rng.lognormal(3, 1, len(ids)),
            "channel": rng.choice(["web", "shop", "phone"], len(ids), p=[0.6, 0.3, 0.1]),
            "refund": rng.random(len(ids)) < risk[ids],
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 365, len(ids)), unit="D"),
        }
    )
    frame.loc[rng.random(len(ids)) < 0.1, "amount"] = np.nan
    share = frame.groupby("set", sort=False)["refund"].mean().to_numpy()
    return Task(frame, (share > np.quantile(share, 0.81)).astype(int))


def interaction(sets: int = 600, seed: int = 0) -> Task:
    """Two features of a member go together or against each other: no summary of single columns tells which."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, sets)
    X = []
    for sign in 2 * y - 1:
        first = rng.normal(size=rng.integers(5, 15))
        X.append(np.stack([first, sign * first + rng.normal(size=len(first))], axis=1))
    return Task(X, y)


def long_tail(sets: int = 1200, seed: int = 0) -> Task:
    """One category column with 3,000 values of a long tail; each value has a hidden price, the target is the sum."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    price, sizes = rng.gamma(2, 2, 3000), rng.integers(5, 30, sets)
    items = np.minimum(rng.zipf(1.3, sizes.sum()) - 1, 2999)
    ids = np.repeat(np.arange(sets), sizes)
    frame = pd.DataFrame({"set": ids.astype(str), "item": [f"item{i}" for i in items]})
    return Task(frame, np.bincount(ids, price[items]) + rng.normal(size=sets), True)


def low_dimensional(sets: int = 200, seed: int = 0) -> Task:
    """Multiple instances with 5 features: positive bags hold a member in a small region."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, sets)
    X = [rng.normal(size=(rng.integers(5, 20), 5)) for _ in range(sets)]
    for x, positive in zip(X, y, strict=True):
        if positive:
            x[0] = [1.5, 1.5, 0, 0, 0] + 0.3 * rng.normal(size=5)
    return Task(X, y)


def many_sets(sets: int = 48_000, seed: int = 0) -> Task:
    """Regression for timing: mean, spread and largest value of 4 features of about 8 members."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 14, sets)
    flat = rng.normal(size=(sizes.sum(), 4))
    X = np.split(flat, np.cumsum(sizes)[:-1])
    y = np.array([x[:, 0].mean() + x[:, 1].max() + (x[:, 2] * x[:, 3]).mean() for x in X])
    return Task(X, y + 0.1 * rng.normal(size=sets), True)


def recipes(sets: int = 8000, seed: int = 0) -> Task:
    """Token sets like recipes: 20 classes, 6,000 ingredients of a long tail, about 11 per set."""
    rng = np.random.default_rng(seed)
    common = 1 / np.arange(1, 6001) ** 0.9
    own = common * rng.gamma(0.3, 1, (20, 6000))
    own /= own.sum(1, keepdims=True)
    shared = common / common.sum()
    y = rng.choice(20, sets, p=np.arange(20, 0, -1) / 210)
    X = []
    for label in y:
        chance = 0.45 * own[label] + 0.55 * shared
        X.append([f"i{i}" for i in dict.fromkeys(rng.choice(6000, rng.integers(4, 18), p=chance).tolist())])
    return Task(X, y)


TASKS = {
    **{name: (lambda name=name: mil(name)) for name in MIL},
    "flights rain": lambda: flights("rain"),
    "flights visibility": lambda: flights("visibility"),
    "trec": trec,
    "splus": splus,
    "imbalance": imbalance,
    "interaction": interaction,
    "long tail": long_tail,
    "low-dimensional MIL": low_dimensional,
    "many sets": many_sets,
    "recipes": recipes,
}
ONCE = ("many sets", "recipes", "trec")  # one split: enough sets for a small error


# ------------------------------------------------------------------------------------------------------- opponents


def summaries(task: Task) -> np.ndarray:
    """What one would write with groupby().agg(); categories as shares of the 30 most frequent."""
    import pandas as pd

    if not isinstance(task.X, pd.DataFrame):
        if isinstance(task.X[0][0], str):
            return np.array([[len(x)] for x in task.X], dtype=float)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            parts = [
                np.r_[len(x), np.nanmean(x, 0), np.nanstd(x, 0), np.nanmin(x, 0), np.nanmax(x, 0), np.isnan(x).mean(0)]
                for x in task.X
            ]
        return np.array(parts)
    frame = task.X
    groups, out = frame.groupby("set", sort=False), []
    out.append(groups.size().to_numpy()[:, None].astype(float))
    for name in frame.columns.drop("set"):
        column = frame[name]
        if name in task.z:
            first = groups[name].first()
            out.append(
                pd.get_dummies(first).to_numpy(float) if first.dtype == object else first.to_numpy(float)[:, None]
            )
        elif column.dtype == object:
            common = column.value_counts().index[:30]
            out.append(np.stack([(column == v).groupby(frame["set"], sort=False).mean() for v in common], axis=1))
        else:
            values = column.astype("int64") / 1e9 if column.dtype.kind == "M" else column.astype(float)
            each = values.groupby(frame["set"], sort=False)
            out.append(np.stack([each.mean(), each.std(ddof=0), each.min(), each.max()], axis=1))
            out.append(column.isna().groupby(frame["set"], sort=False).mean().to_numpy()[:, None])
    return np.concatenate(out, axis=1)


def opponents(task: Task) -> dict[str, Any]:
    """Models by name; those named "bag" take token sets."""
    if task.regression:
        linear = make_pipeline(SimpleImputer(), StandardScaler(), RidgeCV(np.logspace(-3, 4, 15)))
        forest, boosting = RandomForestRegressor(200, random_state=0), HistGradientBoostingRegressor(random_state=0)
    else:
        logistic = LogisticRegressionCV(Cs=[1e-3, 0.01, 0.03, 0.1, 1], cv=3, max_iter=1000)
        linear = make_pipeline(SimpleImputer(), StandardScaler(), logistic)
        forest, boosting = RandomForestClassifier(200, random_state=0), HistGradientBoostingClassifier(random_state=0)
    models = {"linear": linear, "random forest": make_pipeline(SimpleImputer(), forest), "boosting": boosting}
    if not hasattr(task.X, "columns") and isinstance(task.X[0][0], str):
        models["bag"] = make_pipeline(
            CountVectorizer(analyzer=lambda words: words, binary=True), LogisticRegression(max_iter=500)
        )
    return models


# ------------------------------------------------------------------------------------------------------------- run


def part(task: Task, rows: np.ndarray) -> Any:
    if hasattr(task.X, "columns"):
        names = task.X["set"].drop_duplicates().to_numpy()[rows]
        return task.X[task.X["set"].isin(set(names))]
    return [task.X[i] for i in rows]


def folds(name: str, task: Task, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    kind = KFold if task.regression else StratifiedKFold
    split = list(kind(5, shuffle=True, random_state=0).split(np.zeros(len(task.y)), task.y))
    return split[: 1 if name in ONCE else count]


def ours(task: Task, seen: np.ndarray, held: np.ndarray) -> tuple[np.ndarray, float, dict[str, Any]]:
    table = hasattr(task.X, "columns")
    model = (SetRegressor if task.regression else SetClassifier)(by="set" if table else None, random_state=0)
    X, other = part(task, seen), part(task, held)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(X, task.y[seen], **({"z": list(task.z)} if task.z else {}))
        seconds = time.process_time() - start
        found = model.predict(other) if task.regression else model.predict_proba(other)
    facts: dict[str, Any] = {"heads": {k: round(v, 3) for k, v in model.head_weights_.items()}}
    if not task.regression:
        confident = found.max(1)
        right = model.classes_[found.argmax(1)] == task.y[held]
        facts["confidence"] = [confident.tolist(), right.tolist()]
        found = model.classes_[found.argmax(1)]
    return found, seconds, facts


def compare(name: str, task: Task, count: int) -> list[dict[str, Any]]:
    """Rows of all methods: mean score, standard error over folds, CPU seconds of a fit."""
    start = time.process_time()
    table = summaries(task)
    describing = time.process_time() - start
    metric = r2_score if task.regression else accuracy_score
    scores: dict[str, list[float]] = {}
    balanced: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    confidence: list[Any] = [[], []]
    heads: list[Any] = []
    for seen, held in folds(name, task, count):
        found, took, facts = ours(task, seen, held)
        answers = {"ours": (found, took)}
        heads.append(facts["heads"])
        for side, values in zip(confidence, facts.get("confidence", [[], []]), strict=True):
            side.extend(values)
        for method, model in opponents(task).items():
            X, other = (part(task, seen), part(task, held)) if method == "bag" else (table[seen], table[held])
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(X, task.y[seen])
            took = time.process_time() - start
            answers[method] = (
                model.predict(other),
                took + (0 if method == "bag" else describing * len(seen) / len(task.y)),
            )
        for method, (values, took) in answers.items():
            scores.setdefault(method, []).append(float(metric(task.y[held], values)))
            seconds.setdefault(method, []).append(took)
            if not task.regression:
                balanced.setdefault(method, []).append(float(balanced_accuracy_score(task.y[held], values)))
    rows = []
    for method, values in scores.items():
        error = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else None
        row = {"task": name, "method": method, "sets": len(task.y), "score": float(np.mean(values)), "error": error}
        row |= {"seconds": float(np.mean(seconds[method])), "folds": len(values), "scores": values}
        if method in balanced:
            row["balanced accuracy"] = float(np.mean(balanced[method]))
        if method == "ours":
            row["heads"] = heads
            if confidence[0]:
                chance, right = np.array(confidence[0]), np.array(confidence[1])
                row["ece"] = calibration_error_of(chance, right)
        rows.append(row)
    return rows


def calibration_error_of(confidence: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error, 10 bins."""
    bins = np.minimum((confidence * 10).astype(int), 9)
    return float(
        sum(abs(right[bins == b].mean() - confidence[bins == b].mean()) * (bins == b).mean() for b in set(bins))
    )


def run() -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    chosen = os.environ.get("TASKS")
    names = chosen.split(",") if chosen else list(TASKS)
    count = int(os.environ.get("FOLDS", "5"))
    rows: list[dict[str, Any]] = []
    for name in names:
        found = compare(name, TASKS[name](), count)
        for row in found:
            error = "" if row["error"] is None else f" ± {row['error']:.3f}"
            print(
                f"{row['task']:22} {row['method']:14} {row['score']:.3f}{error} {row['seconds']:7.1f} s",
                row.get("ece", ""),
                row.get("heads", ""),
                flush=True,
            )
        rows += found
        if not chosen:
            write(
                "tables",
                rows,
                protocol="5 folds (many sets, recipes, trec: one split), defaults, one thread, CPU seconds",
            )
    return rows
