"""Tree ensembles on summaries: fitted by scikit-learn, kept and evaluated as plain arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingClassifier, HistGradientBoostingRegressor

from .task import Task

MOST_BOOSTED = 600  # columns that gradient boosting looks at


class TreeEnsemble(NamedTuple):
    """Sum of decision trees, all nodes in one array per property.

    A row goes to the left child where its feature is at most the threshold, or where it is missing and `missing_left`
    is set. Leaves point to themselves.
    """

    roots: np.ndarray  # (trees,)
    feature: np.ndarray  # (nodes,), int32; so are left and right
    left: np.ndarray
    right: np.ndarray
    threshold: np.ndarray  # (nodes,)
    missing_left: np.ndarray  # (nodes,), bool
    value: np.ndarray  # (nodes, outputs), what a leaf adds
    base: np.ndarray  # (outputs,), the sum before the first tree
    depth: int  # steps from a root to the deepest leaf

    def __call__(self, x: np.ndarray, block: int = 1 << 21) -> np.ndarray:
        """(n, features) to (n, outputs)."""
        out = np.tile(self.base, (len(x), 1))
        rows_at_once = max(1, block // max(1, len(self.roots)))
        for start in range(0, len(x), rows_at_once):
            part = x[start : start + rows_at_once]
            out[start : start + rows_at_once] += self._sum(part)
        return out

    def _sum(self, x: np.ndarray) -> np.ndarray:
        at = np.tile(self.roots, (len(x), 1))
        rows = np.arange(len(x))[:, None]
        for _ in range(self.depth):
            found = x[rows, self.feature[at]]
            with np.errstate(invalid="ignore"):
                goes_left = (found <= self.threshold[at]) | (np.isnan(found) & self.missing_left[at])
            at = np.where(goes_left, self.left[at], self.right[at])
        return np.stack([self.value[:, j][at].sum(1) for j in range(self.value.shape[1])], axis=1)

    @classmethod
    def from_tensors(cls, tensors: dict[str, torch.Tensor], features: int, outputs: int) -> TreeEnsemble:
        """Rebuild an ensemble; ValueError where the arrays do not describe one."""
        parts = {name: tensors[name].numpy() for name in cls._fields if name != "depth"}
        nodes = len(parts["feature"])
        kinds = {"roots": "i", "feature": "i", "left": "i", "right": "i", "threshold": "f", "missing_left": "b"}
        for name, kind in kinds.items():
            length = len(parts["roots"]) if name == "roots" else nodes
            if parts[name].dtype.kind != kind or parts[name].shape != (length,):
                raise ValueError(f"the array {name!r} of a tree ensemble has a wrong type or length.")
        if parts["value"].shape != (nodes, outputs) or parts["base"].shape != (outputs,):
            raise ValueError("the values of a tree ensemble do not fit its nodes and outputs.")
        if not (np.isfinite(parts["value"]).all() and np.isfinite(parts["base"]).all()):
            raise ValueError("a tree ensemble holds values that are not finite.")
        for name, end in (("roots", nodes), ("left", nodes), ("right", nodes), ("feature", features)):
            if len(parts[name]) and (parts[name].min() < 0 or parts[name].max() >= end):
                raise ValueError(f"the array {name!r} of a tree ensemble points outside.")
        here = np.arange(nodes)
        leaf = (parts["left"] == here) & (parts["right"] == here)
        if not (leaf | ((parts["left"] > here) & (parts["right"] > here))).all():
            raise ValueError("the nodes of a tree ensemble are not in order.")
        return cls(**parts, depth=_depth(parts["roots"], parts["left"], parts["right"]))


def _depth(roots: np.ndarray, left: np.ndarray, right: np.ndarray) -> int:
    at, depth = np.unique(roots), 0
    while len(at):
        inner = at[left[at] != at]
        at = np.unique(np.concatenate([left[inner], right[inner]]))
        depth += bool(len(inner))
    return depth


class _Tree(NamedTuple):
    """One tree, with node numbers of its own."""

    left: np.ndarray
    right: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    missing_left: np.ndarray
    value: np.ndarray

    @classmethod
    def make(
        cls, leaf: Any, left: Any, right: Any, feature: Any, threshold: Any, missing_left: Any, value: Any
    ) -> _Tree:
        """Leaves point to themselves; inner nodes have no value."""
        here = np.arange(len(leaf))
        return cls(
            np.where(leaf, here, left),
            np.where(leaf, here, right),
            np.where(leaf, 0, feature),
            np.where(leaf, 0.0, threshold),
            np.asarray(missing_left, dtype=bool),
            np.where(leaf[:, None], value, 0.0),
        )


def _gather(trees: list[_Tree], base: np.ndarray) -> TreeEnsemble:
    """Trees as one ensemble."""
    starts = np.cumsum([0, *(len(tree.feature) for tree in trees)])[:-1].astype(np.int32)
    moved = [tree._replace(left=tree.left + s, right=tree.right + s) for tree, s in zip(trees, starts, strict=True)]
    left, right, feature, threshold, missing_left, value = map(np.concatenate, zip(*moved, strict=True))
    left, right, feature = (part.astype(np.int32) for part in (left, right, feature))
    depth = _depth(starts, left, right)
    return TreeEnsemble(starts, feature, left, right, threshold, missing_left, value, base, depth)


# ---------------------------------------------------------------------------------------------------------- forest


def fit_forest(
    x: np.ndarray, task: Task, weight: np.ndarray | None, seed: int, trees: int = 200
) -> tuple[TreeEnsemble, np.ndarray]:
    """Fit extremely randomised trees with bootstrap; their out-of-bag predictions (B, outputs) come with them.

    The ensemble gives probabilities, or values in units of the deviation of the target. Classes and labels are fitted
    as 0/1 targets: the squared error of such targets is the Gini impurity.
    """
    rows = len(x)
    model = ExtraTreesRegressor(
        trees,
        min_samples_leaf=1 if rows < 2000 else 2,
        max_features="sqrt" if task.kind != "regression" else 1 / 3,
        bootstrap=True,
        oob_score=False,
        random_state=seed,
    )
    y = task.indicators()
    model.fit(x.astype(np.float32), y[:, 0] if y.shape[1] == 1 else y, sample_weight=weight)
    parts = []
    for t in (tree.tree_ for tree in model.estimators_):
        left, right, value = t.children_left, t.children_right, t.value[:, :, 0] / trees
        parts.append(_Tree.make(left < 0, left, right, t.feature, t.threshold, t.missing_go_to_left, value))
    total, times = np.zeros_like(y), np.zeros((rows, 1))
    for tree, used in zip(model.estimators_, model.estimators_samples_, strict=True):
        out = np.ones(rows, dtype=bool)
        out[used] = False
        if out.any():
            total[out] += tree.predict(x[out].astype(np.float32)).reshape(int(out.sum()), -1)
            times[out] += 1
    held_out = np.where(times > 0, total / np.maximum(times, 1), y.mean(0))
    return _gather(parts, np.zeros(y.shape[1])), held_out


# -------------------------------------------------------------------------------------------------------- boosting


def fit_boosting(
    x: np.ndarray,
    task: Task,
    weight: np.ndarray | None,
    folds: list[tuple[np.ndarray, np.ndarray]],
    seed: int,
    iterations: int = 200,
) -> tuple[TreeEnsemble, np.ndarray]:
    """Fit gradient boosting in folds; the number of trees is chosen by the mean held-out loss of all folds.

    The ensemble gives the mean of the folds' raw scores (log-odds, or units of the target's deviation); after a single
    fold, those of a model fitted to all rows. With it come the raw scores of held-out rows, NaN for other rows.
    """
    x = x.astype(np.float32).astype(np.float64)
    scores = 1 if task.kind == "classes" and task.outputs == 2 else task.outputs
    raw, base = np.full((len(x), scores), np.nan), np.zeros(scores)
    trees: list[_Tree] = []
    for j, y in enumerate([task.y] if task.kind == "classes" else task.y.T):
        models = [
            _Boosted(x[seen], y[seen], None if weight is None else weight[seen], task, iterations, seed)
            for seen, _ in folds
        ]
        curves = [model.stages(x[held]) for model, (_, held) in zip(models, folds, strict=True)]
        losses = sum(task.raw_loss(curve, held, j) * len(held) for curve, (_, held) in zip(curves, folds, strict=True))
        best = int(np.argmin(losses)) + 1
        where = slice(0, raw.shape[1]) if task.kind == "classes" else slice(j, j + 1)
        for curve, (_, held) in zip(curves, folds, strict=True):
            raw[held, where] = curve[best - 1]
        if len(folds) == 1:
            models = [_Boosted(x, y, weight, task, best, seed)]
        for model in models:
            parts, start = model.trees(best, raw.shape[1], where, 1.0 / len(models))
            trees += parts
            base[where] += start
    return _gather(trees, base), raw


class _Boosted:
    """Gradient boosting on the columns that correlate most with the target, if there are very many."""

    def __init__(self, x: np.ndarray, y: np.ndarray, weight: Any, task: Task, iterations: int, seed: int) -> None:
        rows = len(x)
        self.columns = np.flatnonzero(~np.isnan(x).all(0))  # scikit-learn fails at a column without values
        if len(self.columns) > MOST_BOOSTED:
            self.columns = self.columns[_most_correlated(x[:, self.columns], y, task)]
        kind = HistGradientBoostingRegressor if task.kind == "regression" else HistGradientBoostingClassifier
        self.model = kind(
            max_iter=iterations,
            learning_rate=0.1 if rows > 500 else 0.06,
            max_leaf_nodes=31 if rows > 1000 else 15,
            min_samples_leaf=20 if rows > 400 else max(3, rows // 20),
            l2_regularization=1.0,
            max_features=1.0 if x.shape[1] < 30 else 0.3,
            early_stopping=False,
            random_state=seed,
        ).fit(x[:, self.columns], y, sample_weight=weight)

    def stages(self, x: np.ndarray) -> np.ndarray:
        """(iterations, n, scores) raw scores after each iteration."""
        stages = self.model._staged_raw_predict(x[:, self.columns])
        return np.stack([np.array(stage, copy=True).reshape(len(x), -1) for stage in stages])

    def trees(self, best: int, outputs: int, where: slice, scale: float) -> tuple[list[_Tree], np.ndarray]:
        """Trees of the first `best` iterations, and the score before them."""
        out = []
        for each in self.model._predictors[:best]:
            for place, predictor in zip(range(*where.indices(outputs)), each, strict=True):
                nodes = predictor.nodes
                value = np.zeros((len(nodes), outputs))
                value[:, place] = nodes["value"] * scale
                feature = self.columns[nodes["feature_idx"]]
                leaf, threshold, gap = (nodes[n] for n in ("is_leaf", "num_threshold", "missing_go_to_left"))
                out.append(_Tree.make(leaf == 1, nodes["left"], nodes["right"], feature, threshold, gap, value))
        return out, np.asarray(self.model._baseline_prediction, dtype=np.float64).ravel() * scale


def _most_correlated(x: np.ndarray, y: np.ndarray, task: Task) -> np.ndarray:
    """The MOST_BOOSTED columns with the largest correlation with the target, or with one of the classes."""
    with np.errstate(invalid="ignore", divide="ignore"):
        x = np.nan_to_num((x - np.nanmean(x, axis=0)) / np.nanstd(x, axis=0), posinf=0, neginf=0)
    wanted = np.eye(task.outputs)[y] if task.kind == "classes" else y[:, None]
    strength = np.abs(x.T @ (wanted - wanted.mean(0))).max(1)
    return np.sort(np.argsort(-strength, kind="stable")[:MOST_BOOSTED])
