"""Regularised linear models on summaries and bags of tokens, and a kernel machine on summaries for few sets."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge

from .blend import Folds
from .state import check_arrays
from .task import Task, link

LIMIT = 4.0  # deviations at which summaries are clipped
STRENGTHS = (0.1, 0.5, 2.0, 8.0, 32.0, 128.0)  # inverse regularisation, for rows of about unit length
POWERS = (1, 0, 2)  # of the length by which a bag is divided: unit length, sums, means
MOST_KERNEL_SETS = 600
MOST_KERNEL_NUMBERS = 3_000_000  # of the training summaries, which are part of the model
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # inverse squared widths of the kernel, in units of the median squared distance


class LinearHead(NamedTuple):
    """Linear scores of clipped summaries and of bags."""

    mean: np.ndarray  # (S,) standardisation of the summaries
    inverse: np.ndarray  # (S,), 0 for constant summaries
    weight: np.ndarray  # (S, scores)
    bias: np.ndarray  # (scores,)
    power: np.ndarray  # (1,); a bag is divided by its length to this power: 0 keeps sums, 2 gives weighted means

    def __call__(self, features: np.ndarray, bags: list[np.ndarray]) -> np.ndarray:
        """(B, scores) of summaries (B, S) and of sums of token vectors, (B, scores + 1) each."""
        out = _standardise(features, self.mean, self.inverse) @ self.weight + self.bias
        for bag in bags:
            out = out + bag[:, :-1] * np.maximum(bag[:, -1:], 1e-12) ** (-self.power / 2)
        return out

    @classmethod
    def from_tensors(cls, tensors: dict[str, torch.Tensor], features: int, scores: int) -> LinearHead:
        """Rebuild; ValueError where the arrays do not fit."""
        shapes = ((features,), (features,), (features, scores), (scores,), (1,))
        return cls(**check_arrays("linear", tensors, dict(zip(cls._fields, shapes, strict=True))))


def _standardise(features: np.ndarray, mean: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """Clipped deviations; a missing summary is 0, the mean."""
    return np.clip(np.nan_to_num((features - mean) * inverse, nan=0.0), -LIMIT, LIMIT)


def bag_matrix(codes: np.ndarray, set_ids: np.ndarray, sets: int, vocabulary: int, weights: Any) -> sp.csr_array:
    """(sets, vocabulary + 1) how often each code occurs in each set."""
    ones = np.ones(len(codes)) if weights is None else weights
    matrix = sp.coo_array((ones, (set_ids, codes)), shape=(sets, vocabulary + 1)).tocsr()
    matrix.sum_duplicates()
    return matrix


def fit_linear(
    features: np.ndarray, bags: list[sp.csr_array], task: Task, weight: np.ndarray | None, folds: Folds
) -> tuple[LinearHead, list[np.ndarray], np.ndarray]:
    """Fit logistic or ridge regression to all rows; the regularisation is chosen by the held-out loss of the folds.

    Parameters
    ----------
    features : ndarray of shape (B, S)
    bags : list of sparse arrays of shape (B, V + 1)
        Counts of the codes of each category column; column 0 (unknown) is ignored.

    Returns
    -------
    head : LinearHead
    tables : list of ndarray of shape (V + 1, scores + 1)
        For each bag, the vector of each code times the token's weight, and the square of that weight.
    held_out : ndarray of shape (B, scores)
        Raw scores of held-out rows; NaN for rows in no held-out fold.

    """
    dense, mean, inverse = _design(features)
    token_weights = [_token_weights(bag) for bag in bags]
    rotation, power, units = None, 1, [1.0] * len(bags)
    x: Any = dense
    if bags:
        designs = {p: _with_bags(dense, bags, token_weights, p) for p in POWERS}
        power = min(POWERS, key=lambda p: _search(designs[p][0], task, weight, folds[:1], (2.0, 8.0, 32.0))[0])
        x, units = designs[power]
    elif x.shape[1] > len(x):  # an L2 penalty does not see a rotation: solve in the span of the rows
        rotation = np.linalg.svd(x, full_matrices=False)[2].T
        x = x @ rotation
    _, held_out, strength = _search(x, task, weight, folds, STRENGTHS)
    coefficients, bias = _solve(x, task, weight, strength, None)
    coefficients = coefficients if rotation is None else rotation @ coefficients
    unit = max(1, int(np.count_nonzero(inverse))) ** -0.5
    head = LinearHead(mean, inverse, coefficients[: dense.shape[1]] * unit, bias, np.array([float(power)]))
    tables, start = [], dense.shape[1]
    for f, scale in zip(token_weights, units, strict=True):
        rows = coefficients[start : start + len(f)] * (f * scale)[:, None]
        tables.append(np.concatenate([rows, f[:, None] ** 2], axis=1))
        start += len(f)
    return head, tables, held_out


def choose_blocks(
    usual: np.ndarray, blocks: dict[str, np.ndarray], task: Task, weight: np.ndarray | None, folds: Folds
) -> list[str]:
    """Names of the blocks of features that lower the held-out loss of a linear model by more than a standard error."""
    if not blocks:
        return []
    rows = np.arange(len(usual))[:: 1 + len(usual) // 6000]
    place = np.full(len(usual), -1)
    place[rows] = np.arange(len(rows))
    few = [(place[seen][place[seen] >= 0], place[held][place[held] >= 0]) for seen, held in folds[:3]]
    task, weight = task.take(rows), None if weight is None else weight[rows]
    known = np.concatenate([held for _, held in few])

    def losses(names: list[str]) -> np.ndarray:
        x = np.concatenate([usual[rows], *(blocks[n][rows] for n in names)], axis=1)
        raw = _search(_design(x)[0], task, weight, few, STRENGTHS[1:])[1]
        return task.take(known).loss(link(raw[known], task.kind))

    chosen: list[str] = []
    best = losses(chosen)
    while len(chosen) < len(blocks):
        found = {name: losses([*chosen, name]) for name in blocks if name not in chosen}
        name = min(found, key=lambda n: found[n].mean())
        gain = best - found[name]
        if gain.mean() < max(gain.std() / len(gain) ** 0.5, 0.005 * best.mean()):
            break
        chosen.append(name)
        best = found[name]
    return [name for name in blocks if name in chosen]


def _design(features: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standardised features with rows of about unit length; mean and inverse deviation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        mean = np.nan_to_num(np.nanmean(features, axis=0))
        deviation = np.nanstd(features, axis=0)
    inverse = np.where(deviation > 1e-9, 1 / np.where(deviation > 1e-9, deviation, 1), 0.0)
    unit = max(1, int(np.count_nonzero(inverse))) ** -0.5
    return _standardise(features, mean, inverse) * unit, mean, inverse


def _with_bags(
    dense: np.ndarray, bags: list[sp.csr_array], weights: list[np.ndarray], power: int
) -> tuple[sp.csr_array, list[float]]:
    """Features and bags side by side; the factor that gives rows of each bag about unit length."""
    parts, units = [sp.csr_array(dense)], []
    for bag, f in zip(bags, weights, strict=True):
        length = np.sqrt(np.maximum(bag @ (f**2), 1e-12))
        part = sp.csr_array(sp.diags_array(length ** -float(power)) @ bag @ sp.diags_array(f))
        units.append(float(part.multiply(part).sum() / len(length)) ** -0.5 if part.nnz else 1.0)
        parts.append(part * units[-1])
    return sp.hstack(parts).tocsr(), units


def _search(
    x: Any, task: Task, weight: Any, folds: Folds, strengths: tuple[float, ...]
) -> tuple[float, np.ndarray, float]:
    """Lowest held-out loss, scores and strength: each fold goes from strong to weak regularisation, warm."""
    best: tuple[float, np.ndarray, float] = (np.inf, np.zeros(0), 0.0)
    losses: list[float] = []
    before: list[Any] = [None] * len(folds)
    for strength in strengths:
        raw, loss = np.full((x.shape[0], _scores(task)), np.nan), 0.0
        for k, (seen, held) in enumerate(folds):
            before[k] = _solve(x[seen], task.take(seen), None if weight is None else weight[seen], strength, before[k])
            raw[held] = x[held] @ before[k][0] + before[k][1]
            loss += _loss(raw[held], task.take(held))
        losses.append(loss)
        best = min(best, (loss, raw, strength), key=lambda found: found[0])
        if len(losses) >= 3 and losses[-1] > losses[-2] > losses[-3]:
            break
    return best


def _scores(task: Task) -> int:
    return 1 if task.kind == "classes" and task.outputs == 2 else task.outputs


def _loss(raw: np.ndarray, task: Task) -> float:
    if task.kind == "classes":
        return float(task.raw_loss(raw[None], np.arange(len(raw)), 0)[0]) * len(raw)
    each = [task.raw_loss(raw[None, :, j : j + 1], np.arange(len(raw)), j)[0] for j in range(raw.shape[1])]
    return float(np.sum(each)) * len(raw)


def _solve(x: Any, task: Task, weight: Any, strength: float, start: Any) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (p, scores) and bias (scores,)."""
    if task.kind == "regression":
        model = Ridge(1 / strength, solver="lsqr" if sp.issparse(x) else "auto", tol=1e-5)
        model.fit(x, task.y, sample_weight=weight)
        return model.coef_.reshape(task.outputs, -1).T, np.atleast_1d(model.intercept_)
    if task.kind == "labels":
        each = [
            _logistic(
                x,
                task.y[:, j].astype(int),
                2,
                weight,
                strength,
                None if start is None else (start[0][:, [j]], start[1][[j]]),
            )
            for j in range(task.outputs)
        ]
        return np.concatenate([c for c, _ in each], axis=1), np.concatenate([b for _, b in each])
    return _logistic(x, task.y, task.outputs, weight, strength, start)


def _logistic(
    x: Any, y: np.ndarray, classes: int, weight: Any, strength: float, start: Any
) -> tuple[np.ndarray, np.ndarray]:
    scores = 1 if classes == 2 else classes
    seen = np.unique(y)
    if len(seen) == 1:  # a label that all or none of these sets have
        bias = np.full(scores, -6.0)
        bias[0 if scores == 1 else seen[0]] = 6.0 if scores > 1 or seen[0] else -6.0
        return np.zeros((x.shape[1], scores)), bias
    model = LogisticRegression(C=strength, tol=1e-3, max_iter=200, warm_start=start is not None)
    if start is not None:
        used = slice(None) if scores == 1 else seen
        if len(seen) == classes:
            model.coef_, model.intercept_, model.classes_ = start[0].T[used].copy(), start[1][used].copy(), seen
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y, sample_weight=weight)
    if scores == 1 or len(seen) == classes:
        return model.coef_.T, model.intercept_
    coefficients, bias = np.zeros((x.shape[1], classes)), np.full(classes, -12.0)
    if len(seen) == 2:
        coefficients[:, seen] = np.stack([-model.coef_[0], model.coef_[0]], axis=1) / 2
        bias[seen] = [-model.intercept_[0] / 2, model.intercept_[0] / 2]
    else:
        coefficients[:, seen], bias[seen] = model.coef_.T, model.intercept_
    return coefficients, bias


def _token_weights(bag: sp.csr_array) -> np.ndarray:
    """(V + 1,) root of the smoothed inverse document frequency; 0 for the unknown token."""
    found = np.bincount(bag.indices, minlength=bag.shape[1])
    weights = np.sqrt(np.log((1 + bag.shape[0]) / (1 + found)) + 1)
    weights[0] = 0.0
    return weights


# ---------------------------------------------------------------------------------------------------------- kernel


class KernelHead(NamedTuple):
    """Logistic or ridge regression with a Gaussian kernel of standardised summaries."""

    mean: np.ndarray  # (S,) standardisation, as in `LinearHead`
    inverse: np.ndarray
    points: np.ndarray  # (B, S) standardised summaries of the training sets
    dual: np.ndarray  # (B, scores)
    bias: np.ndarray  # (scores,)
    width: np.ndarray  # (1,) factor of the squared distances

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """(n, S) to (n, scores)."""
        x = _standardise(features, self.mean, self.inverse)
        return np.exp(-self.width * _squared_distances(x, self.points)) @ self.dual + self.bias

    @classmethod
    def from_tensors(cls, tensors: dict[str, torch.Tensor], features: int, scores: int) -> KernelHead:
        """Rebuild; ValueError where the arrays do not fit."""
        sets = len(tensors["points"]) if "points" in tensors else 0
        shapes = ((features,), (features,), (sets, features), (sets, scores), (scores,), (1,))
        return cls(**check_arrays("kernel", tensors, dict(zip(cls._fields, shapes, strict=True))))


def fit_kernel(
    features: np.ndarray, task: Task, weight: np.ndarray | None, folds: Folds
) -> tuple[KernelHead, np.ndarray]:
    """Fit to all rows, with the width and regularisation of the lowest held-out loss; scores of held-out rows."""
    _, mean, inverse = _design(features)
    points = _standardise(features, mean, inverse)
    distances = _squared_distances(points, points)
    unit = float(np.median(distances[distances > 0])) if (distances > 0).any() else 1.0
    best, found = np.inf, None
    for width in (w / unit for w in WIDTHS):
        size, vectors = np.linalg.eigh(np.exp(-width * distances))
        used = size > 1e-6 * size[-1]
        roots = np.sqrt(size[used])
        x = vectors[:, used] * roots  # rows whose inner products are the kernel
        loss, held_out, strength = _search(x, task, weight, folds, STRENGTHS)
        if loss < best:
            best, found = loss, (x, vectors[:, used] / roots, width, held_out, strength)
    assert found is not None
    x, back, width, held_out, strength = found
    coefficients, bias = _solve(x, task, weight, strength, None)
    return KernelHead(mean, inverse, points, back @ coefficients, bias, np.array([width])), held_out


def _squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.maximum(np.square(a).sum(1)[:, None] + np.square(b).sum(1) - 2 * a @ b.T, 0)
