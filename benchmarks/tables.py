"""`SetClassifier()` and `SetRegressor()` against `groupby().agg()` and a model: same folds, one thread, CPU seconds.

Opponents on summaries (count, mean, std, min, max, sum, missing shares, shares of frequent categories, set-level
columns): logistic or ridge regression with the regularisation chosen by cross-validation, a random forest, gradient
boosting; on token sets, logistic or ridge regression on the bag, forest and boosting on the 300 most frequent tokens.

Run as ``python -m benchmarks tables``; the environment variable TASKS (comma-separated names) chooses a part. Each
task, method and fold is run once and kept in results/.tables; to run one again, delete its entry there.
"""

from __future__ import annotations

import gzip
import json
import os
import warnings
from collections.abc import Callable
from functools import partial
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
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, Ridge, RidgeCV
from sklearn.metrics import balanced_accuracy_score, r2_score, roc_auc_score
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from deepsets.estimators import SetClassifier, SetRegressor

from .mil import read
from .results import RESULTS, data_folder, write

MIL = ("musk1", "elephant", "fox", "corel_dogs", "protein", "ucsb_breast_cancer", "web_recommendation_1")
PARTS = RESULTS / ".tables"
PROTOCOL = (
    "5 folds (many sets, recipes, trec: one split), defaults, one thread, CPU seconds of a fit; standard error of the "
    "paired difference to the best opponent, over folds or, with one split, over sets"
)


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


def baskets(sets: int = 900, seed: int = 0) -> Task:
    """Receipts with category, price, quantity and time of day: the segment of the customer (3 classes)."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    y, sizes = rng.choice(3, sets, p=[0.5, 0.3, 0.2]), rng.integers(4, 30, sets)
    ids = np.repeat(np.arange(sets), sizes)
    taste = rng.dirichlet(np.full(12, 0.7), 3)
    own = np.stack([rng.dirichlet(6 * taste[label] + 0.05) for label in y])
    kinds = np.array([rng.choice(12, p=own[i]) for i in ids])
    price = np.exp(rng.normal(1 + 0.15 * kinds, 0.6) + 0.15 * (y[ids] == 1))
    hour = (17 + 2.0 * (y[ids] == 2) + 4 * rng.normal(size=len(ids))) % 24
    frame = pd.DataFrame({"set": ids, "category": [f"c{k}" for k in kinds], "price": price})
    frame["quantity"] = 1 + rng.poisson(0.5 + 0.3 * (y[ids] == 0))
    frame["time"] = pd.Timestamp("2024-03-01") + pd.to_timedelta(hour + 24 * rng.integers(0, 90, len(ids)), unit="h")
    return Task(frame, y)


def spending(sets: int = 700, seed: int = 0) -> Task:
    """Regression: what was spent in one channel, a sum of numbers where a category holds."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 25, sets)
    ids = np.repeat(np.arange(sets), sizes)
    frame = pd.DataFrame({"set": ids, "amount": rng.gamma(2, 10, len(ids))})
    frame["channel"] = rng.choice(["web", "shop", "phone", "mail"], len(ids), p=[0.4, 0.3, 0.2, 0.1])
    frame["age"] = rng.integers(18, 80, sets)[ids]
    spent = frame.amount.where(frame.channel == "web", 0).groupby(frame["set"]).sum().to_numpy()
    age = frame.groupby("set").age.first().to_numpy()
    return Task(frame, spent + 0.5 * age + rng.normal(0, 10, sets), True, ("age",))


def sensors(sets: int = 500, seed: int = 0) -> Task:
    """Regression on 12 columns of readings, of which two matter: a share above a limit and a quantile."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(sets):
        x = rng.normal(rng.normal(0, 0.5, 12), rng.gamma(4, 0.25, 12), (rng.integers(20, 80), 12))
        X.append(x)
        y.append((x[:, 0] > 1).mean() * 4 + np.quantile(x[:, 1], 0.9) + 0.2 * rng.normal())
    return Task(X, np.array(y), True)


def shapes(sets: int = 400, seed: int = 0) -> Task:
    """Five classes of distributions in two dimensions with the same mean and covariance."""
    rng = np.random.default_rng(seed)
    y, X = rng.integers(0, 5, sets), []
    for label in y:
        n = int(rng.integers(20, 60))
        if label == 0:
            x = rng.normal(size=(n, 2))
        elif label == 1:
            x = rng.uniform(-(3**0.5), 3**0.5, (n, 2))
        elif label == 2:
            turn = rng.uniform(0, 2 * np.pi, n)
            x = 2**0.5 * np.stack([np.cos(turn), np.sin(turn)], 1)
        elif label == 3:
            x = rng.choice([-1.0, 1.0], (n, 2))
        else:
            x = rng.laplace(size=(n, 2)) / 2**0.5
        X.append(x + 0.25 * rng.normal(size=(n, 2)))
    return Task(X, y)


def witness(sets: int = 150, seed: int = 0) -> Task:
    """Multiple instances in 60 dimensions: one member in eight of a positive bag comes from another region."""
    rng = np.random.default_rng(seed)
    y, mix = rng.integers(0, 2, sets), rng.normal(size=(60, 60)) / 60**0.5
    shift, X = 2.5 * rng.normal(size=60) * (rng.random(60) < 0.2), []
    for positive in y:
        x = rng.normal(size=(rng.integers(4, 20), 60)) @ mix
        if positive:
            x[: 1 + len(x) // 8] += shift
        X.append(x)
    return Task(X, y)


def weak(sets: int = 300, seed: int = 0) -> Task:
    """A weak linear signal in 8 columns: half of the answer is chance, so probabilities must be modest."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(rng.integers(3, 12), 8)) + rng.normal(size=8) for _ in range(sets)]
    score = np.array([x.mean(0)[:3].sum() for x in X])
    return Task(X, (rng.random(sets) < 1 / (1 + np.exp(-score))).astype(int))


def tags(sets: int = 1500, seed: int = 0) -> Task:
    """Token sets with weights behind them: regression on 800 words of a long tail, about 8 per set."""
    rng = np.random.default_rng(seed)
    chance = 1 / np.arange(1, 801) ** 0.8
    worth = rng.normal(size=800)
    X = [rng.choice(800, rng.integers(2, 15), replace=False, p=chance / chance.sum()) for _ in range(sets)]
    y = np.array([worth[x].mean() for x in X]) + 0.15 * rng.normal(size=sets)
    return Task([[f"w{i}" for i in x] for x in X], y, True)


GENERATED = {
    "imbalance": imbalance,
    "interaction": interaction,
    "long tail": long_tail,
    "low-dimensional MIL": low_dimensional,
    "baskets": baskets,
    "spending": spending,
    "sensors": sensors,
    "shapes": shapes,
    "witness": witness,
    "weak": weak,
    "tags": tags,
    "many sets": many_sets,
    "recipes": recipes,
}
TASKS: dict[str, Callable[[], Task]] = {
    **{name: partial(mil, name) for name in MIL},
    "flights rain": partial(flights, "rain"),
    "flights visibility": partial(flights, "visibility"),
    "trec": trec,
    "splus": splus,
    **GENERATED,
}
ONCE = ("many sets", "recipes", "trec")  # one split: enough sets for a small error


# ------------------------------------------------------------------------------------------------------- opponents


def summaries(task: Task) -> np.ndarray:
    """What one would write with groupby().agg(); categories as shares of the 30 most frequent, 300 for tokens alone."""
    import pandas as pd

    if not isinstance(task.X, pd.DataFrame):
        if isinstance(task.X[0][0], str):
            words = CountVectorizer(analyzer=lambda words: words, max_features=300)
            return np.column_stack([words.fit_transform(task.X).toarray(), [len(x) for x in task.X]]).astype(float)
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
        text = not pd.api.types.is_numeric_dtype(column) and column.dtype.kind != "M"
        if name in task.z:
            first = groups[name].first()
            out.append(pd.get_dummies(first).to_numpy(float) if text else first.to_numpy(float)[:, None])
        elif text:
            common = column.value_counts().index[:30]
            out.append(np.stack([(column == v).groupby(frame["set"], sort=False).mean() for v in common], axis=1))
        else:
            values = column.astype("int64") / 1e9 if column.dtype.kind == "M" else column.astype(float)
            each = values.groupby(frame["set"], sort=False)
            out.append(np.stack([each.mean(), each.std(ddof=0), each.min(), each.max(), each.sum()], axis=1))
            out.append(column.isna().groupby(frame["set"], sort=False).mean().to_numpy()[:, None])
    return np.concatenate(out, axis=1)


def opponents(task: Task) -> dict[str, Any]:
    """Models by name; "bag" takes the token sets themselves."""
    tokens = not hasattr(task.X, "columns") and isinstance(task.X[0][0], str)
    bag = CountVectorizer(analyzer=lambda words: words, binary=True)
    if task.regression:
        linear = make_pipeline(SimpleImputer(), StandardScaler(), RidgeCV(np.logspace(-3, 4, 15)))
        forest, boosting = RandomForestRegressor(200, random_state=0), HistGradientBoostingRegressor(random_state=0)
        bag_model = make_pipeline(bag, Ridge())
    else:
        logistic = LogisticRegressionCV(Cs=[1e-3, 0.01, 0.03, 0.1, 1], cv=3, max_iter=1000)
        linear = make_pipeline(SimpleImputer(), StandardScaler(), logistic)
        forest, boosting = RandomForestClassifier(200, random_state=0), HistGradientBoostingClassifier(random_state=0)
        bag_model = make_pipeline(bag, LogisticRegression(max_iter=500))
    models = {"linear": linear, "forest": make_pipeline(SimpleImputer(), forest), "boosting": boosting}
    return {"bag": bag_model, "forest": models["forest"], "boosting": boosting} if tokens else models


# ------------------------------------------------------------------------------------------------------------- run


def part(task: Task, rows: np.ndarray) -> Any:
    if hasattr(task.X, "columns"):
        names = task.X["set"].drop_duplicates().to_numpy()[rows]
        return task.X[task.X["set"].isin(set(names))]
    return [task.X[i] for i in rows]


def split(name: str, task: Task, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Five folds, the same for all methods; rows in order, as tables give their sets."""
    kind = KFold if task.regression else StratifiedKFold
    folds = kind(5, shuffle=True, random_state=seed).split(np.zeros(len(task.y)), task.y)
    return [(np.sort(seen), np.sort(held)) for seen, held in folds][: 1 if name in ONCE else 5]


def cpu() -> float:
    return sum(os.times()[:4])


def fit_ours(task: Task, seen: np.ndarray, held: np.ndarray, **options: Any) -> tuple[np.ndarray, float, Any]:
    """Values or probabilities for the held-out sets, CPU seconds of the fit, the model."""
    table = hasattr(task.X, "columns")
    kind = SetRegressor if task.regression else SetClassifier
    model = kind(by="set" if table else None, random_state=0, **options)
    X, other = part(task, seen), part(task, held)
    start = cpu()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(X, task.y[seen], **({"z": list(task.z)} if task.z else {}))
        seconds = cpu() - start
        return model.predict(other) if task.regression else model.predict_proba(other), seconds, model


def fit_opponent(
    task: Task, table: np.ndarray, method: str, seen: np.ndarray, held: np.ndarray
) -> tuple[np.ndarray, float, Any]:
    model = opponents(task)[method]
    X, other = (part(task, seen), part(task, held)) if method == "bag" else (table[seen], table[held])
    start = cpu()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, task.y[seen])
        seconds = cpu() - start
        return model.predict(other) if task.regression else model.predict_proba(other), seconds, model


def measure(task: Task, held: np.ndarray, found: np.ndarray, classes: np.ndarray | None) -> dict[str, Any]:
    """Scores of one fold, and the loss of each set: the score is 1 minus their mean."""
    y = task.y[held]
    if classes is None:
        return {"score": float(r2_score(y, found)), "loss": ((y - found) ** 2 / y.var()).round(6).tolist()}
    answer = classes[found.argmax(1)]
    out = {"score": float((answer == y).mean()), "balanced": float(balanced_accuracy_score(y, answer))}
    if len(classes) == 2:
        out["auc"] = float(roc_auc_score(y == classes[1], found[:, 1]))
    return out | {"loss": (answer != y).astype(int).tolist(), "confidence": found.max(1).round(4).tolist()}


def run_task(name: str) -> None:
    """Fill the gaps in the record of one task: methods and folds that were not run yet."""
    file = PARTS / f"{name.replace(' ', '_')}.json"
    record: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    task = TASKS[name]()
    folds, table, describing = split(name, task), None, 0.0
    for method in ["ours", *opponents(task)]:
        rows = record.setdefault(method, [])
        for seen, held in folds[len(rows) :]:
            if method == "ours":
                found, seconds, model = fit_ours(task, seen, held)
            else:
                if table is None:
                    start = cpu()
                    table = summaries(task)
                    describing = cpu() - start
                found, seconds, model = fit_opponent(task, table, method, seen, held)
                seconds += 0 if method == "bag" else describing * len(seen) / len(task.y)
            row = measure(task, held, found, None if task.regression else model.classes_) | {"seconds": seconds}
            if method == "ours":
                row["heads"] = {head: round(weight, 3) for head, weight in model.head_weights_.items()}
            rows.append(row)
            record["sets"] = len(task.y)
            PARTS.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(record))
            print(f"{name:22} {method:9} {row['score']:.3f} {seconds:7.1f} s", row.get("heads", ""), flush=True)


def summarise(name: str, record: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per method: means over folds, difference to the best opponent with its standard error, calibration."""
    methods = [m for m in record if m != "sets" and record[m]]
    scores = {m: np.array([row["score"] for row in record[m]]) for m in methods}
    best = max((m for m in methods if m != "ours"), key=lambda m: scores[m].mean())
    out = []
    for method in methods:
        rows = record[method]
        row: dict[str, Any] = {"task": name, "sets": record["sets"], "method": method, "folds": len(rows)}
        row |= {key: float(np.mean([r[key] for r in rows])) for key in ("score", "balanced", "auc") if key in rows[0]}
        row["seconds"] = float(np.mean([r["seconds"] for r in rows]))
        if "confidence" in rows[0]:
            confidence, wrong = (np.concatenate([r[key] for r in rows]) for key in ("confidence", "loss"))
            row["ece"] = calibration_error(confidence, 1 - wrong)
        if method == "ours":
            both = [(r["score"], o["score"], r["loss"], o["loss"]) for r, o in zip(rows, record[best], strict=False)]
            folds = np.array([ours - theirs for ours, theirs, _, _ in both])
            sets = np.array(both[0][3]) - np.array(both[0][2])
            spread = folds if len(folds) > 1 else sets
            row |= {"heads": [r["heads"] for r in rows], "best opponent": best, "difference": float(folds.mean())}
            row["standard error"] = float(spread.std(ddof=1) / len(spread) ** 0.5)
        out.append(row)
    return out


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error, 10 bins."""
    bins = np.minimum((confidence * 10).astype(int), 9)
    return float(
        sum(abs(right[bins == b].mean() - confidence[bins == b].mean()) * (bins == b).mean() for b in set(bins))
    )


def update_page(rows: list[dict[str, Any]]) -> None:
    """Replace the table of docs/estimators.md: the best opponent of each task and our default."""
    page = RESULTS.parent / "docs" / "estimators.md"
    columns = ["task", "sets", "best opponent", "its score", "ours", "difference ± standard error"]
    columns += ["seconds, boosting", "ours", "ECE"]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    by_name = {(row["task"], row["method"]): row for row in rows}
    for row in (row for row in rows if row["method"] == "ours"):
        best = by_name[row["task"], row["best opponent"]]
        cells = [row["task"], str(row["sets"]), best["method"], f"{best['score']:.3f}", f"{row['score']:.3f}"]
        cells.append(f"{row['difference']:+.3f} ± {row['standard error']:.3f}")
        boosting = by_name.get((row["task"], "boosting"))
        cells += [f"{boosting['seconds']:.1f}" if boosting else "–", f"{row['seconds']:.1f}"]
        lines.append("| " + " | ".join([*cells, f"{row['ece']:.3f}" if "ece" in row else "–"]) + " |")
    head, rest = page.read_text().split("<!-- tables: begin -->")
    end = rest.split("<!-- tables: end -->")[1]
    page.write_text(head + "<!-- tables: begin -->\n\n" + "\n".join(lines) + "\n\n<!-- tables: end -->" + end)


def run() -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    chosen = os.environ.get("TASKS")
    for name in chosen.split(",") if chosen else list(TASKS):
        run_task(name)
    return collect()


def collect() -> list[dict[str, Any]]:
    """Write results/tables.json and the page from what was measured so far; the rows of our default."""
    rows: list[dict[str, Any]] = []
    for name in TASKS:
        file = PARTS / f"{name.replace(' ', '_')}.json"
        if file.exists():
            rows += summarise(name, json.loads(file.read_text()))
    write("tables", rows, protocol=PROTOCOL)
    update_page(rows)
    return [row for row in rows if row["method"] == "ours"]
