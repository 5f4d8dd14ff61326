"""Support distribution machines: kernel regression on sets as samples of distributions (Póczos et al. 2012)."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from sklearn.base import RegressorMixin

from ..sets import Sets
from .base import TableEstimator
from .layout import Members, place
from .targets import as_numbers, check_finite_targets, one_per_set


class _Choice(NamedTuple):
    """What cross-validation chooses: the octave of the inner kernel, the width of the outer one, the ridge."""

    octave: int
    width: float
    ridge: float


@dataclass(kw_only=True, eq=False, repr=False)
class SupportDistributionMachine(RegressorMixin, TableEstimator):
    r"""Kernel ridge regression on the distributions behind the sets (Póczos et al. 2012).

    The kernel is $K(p, q) = \exp(−D²(p, q) / 2w²)$ with the distance of the mean embeddings,
    $D² = \hat k(p, p) + \hat k(q, q) − 2 \hat k(p, q)$, $\hat k(p, q) = \frac{1}{MM'} Σ_{ij} k(x_i, y_j)$ and a
    Gaussian k. D is a distance between points of a Hilbert space, so K needs no projection to be positive
    semi-definite. Features are standardised; the bandwidth of k (2^octave times the median distance of members), w
    (times the median D) and the ridge are chosen by cross-validation.

    Parameters
    ----------
    features : int, default=500
        Random frequencies that approximate k, a cosine and a sine each.
    octaves : tuple of two int
        First and last bandwidth of the grid.
    widths, ridges : tuple of float
        The rest of the grid.
    folds : int, default=3
        Folds of the cross-validation.
    search : int, default=1024
        Sets on which the grid is tried; the best three kernels are then tried on all sets.
    memory : float, optional
        GB that N x N matrices may take (default: half of the machine's memory); `fit` refuses more.
    by : str, optional
        For tables: the column that identifies the set.
    columns : list of str, optional
        For tables: the feature columns (default: all others).
    random_state : int, RandomState or None

    Attributes
    ----------
    choice_ : tuple
        Octave, width and ridge chosen by cross-validation; `cv_error_` is their mean squared error.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(scale=s, size=(50, 2)) for s in rng.uniform(0.5, 2, 80)]
    >>> y = [np.log(x.std()) for x in X]
    >>> model = SupportDistributionMachine(random_state=0).fit(X[:60], y[:60])
    >>> bool(model.score(X[60:], y[60:]) > 0.9)
    True

    """

    features: int = 500
    octaves: tuple[int, int] = (-3, 3)
    widths: tuple[float, ...] = (0.25, 0.5, 1, 2, 4, 8, 16)
    ridges: tuple[float, ...] = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1)
    folds: int = 3
    search: int = 1024
    memory: float | None = None
    by: str | None = None
    columns: list[str] | None = None
    random_state: int | np.random.RandomState | None = None

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to sets X and targets y.

        Parameters
        ----------
        X : list of arrays, array, Sets, Arrow list column or table
            Members with numbers as features.
        y : array of shape (sets,) or (sets, targets), or str
            Targets; for a table also the name of a column.

        """
        if not isinstance(self.features, int | np.integer) or self.features < 1:
            raise ValueError(f"features must be an integer of at least 1, found {self.features!r}.")
        members, _, y = self._read_first(X, y, None)
        wanted = as_numbers(one_per_set(y, members, "target"), "set")
        check_finite_targets(wanted)
        self._check_size(len(members))
        self._learn_columns(members, None)
        sets = self._scaled(members)
        rng = np.random.default_rng(self._seed())
        rows = rng.permutation(sets.total)[:1000]
        self._distance = float(torch.pdist(sets.values[rows]).median()) or 1.0
        self._frequencies = torch.from_numpy(rng.standard_normal((sets.width, self.features), dtype=np.float32))
        self._points = self._embed(sets)
        self.n_outputs_, self.flat_ = int(wanted[0].size), wanted.ndim == 1
        self.center_ = wanted.mean(0)
        centred = wanted - self.center_
        order = rng.permutation(len(sets))
        grid = [_Choice(*c) for c in product(self._octaves(), self.widths, self.ridges)]
        ranked = self._errors(grid, order[: self.search], centred)
        if len(sets) > self.search:
            kernels = list(dict.fromkeys((c.octave, c.width) for c in ranked))[:3]
            about = neighbours(self.ridges, next(iter(ranked)).ridge)
            ranked = self._errors([_Choice(*k, ridge) for k in kernels for ridge in about], order, centred)
        self.choice_, self.cv_error_ = next(iter(ranked.items()))
        squared, self._own = self._distances(self.choice_.octave, np.arange(len(sets)))
        self._unit = median_distance(squared)
        kernel = outer_kernel(squared, self.choice_.width, self._unit)
        del squared
        self.dual_ = solve(kernel, centred, self.choice_.ridge)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predict values, (sets,) or (sets, targets)."""
        members, _, _ = self._read(X)
        sets, (octave, width, _) = self._scaled(members), self.choice_
        parts = []
        for rows in torch.arange(len(sets)).split(1024):
            points = self._embed(sets[rows])[octave]
            inner, own = points @ self._points[octave].T, np.square(points).sum(1)
            parts.append(outer_kernel(squared_distances(inner, own, self._own), width, self._unit) @ self.dual_)
        return np.concatenate(parts) + self.center_

    # --------------------------------------------------------------------------------------------------- state

    def _add_state(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        facts["choice"] = [int(self.choice_.octave), float(self.choice_.width), float(self.choice_.ridge)]
        facts["numbers"] = [float(v) for v in (self.cv_error_, self._distance, self._unit)]
        tensors["dual"] = torch.from_numpy(self.dual_.reshape(len(self._own), -1))
        tensors["own"], tensors["center"] = torch.from_numpy(self._own), torch.from_numpy(np.atleast_1d(self.center_))
        tensors |= {"frequencies": self._frequencies, "points": torch.from_numpy(self._points[self.choice_.octave])}

    def _restore(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        octave, width, ridge = facts["choice"]
        if type(octave) is not int or abs(octave) > 64 or not (width > 0 and ridge > 0):
            raise ValueError(f"the choice {facts['choice']!r} is not valid.")
        self.choice_ = _Choice(octave, float(width), float(ridge))
        self.cv_error_, self._distance, self._unit = (float(v) for v in facts["numbers"])
        own, dual, center = (tensors[name].numpy() for name in ("own", "dual", "center"))
        if own.ndim != 1 or dual.shape != (len(own), self.n_outputs_) or center.shape != (self.n_outputs_,):
            raise ValueError("the arrays of the kernel regression do not fit together.")
        self._own, self.dual_ = own, dual[:, 0] if self.flat_ else dual
        self.center_ = center[0] if self.flat_ else center
        self._frequencies, points = tensors["frequencies"], tensors["points"].numpy()
        if self._frequencies.ndim != 2 or len(self._frequencies) != self.encoder_.numbers:
            raise ValueError("the frequencies do not fit the features.")
        if points.shape != (len(own), 2 * self._frequencies.shape[1]):
            raise ValueError("the frequencies do not fit the points.")
        self._points = {octave: points}

    # ------------------------------------------------------------------------------------------ the inner kernel

    def _scaled(self, members: Members) -> Sets:
        if members.columns.categories:
            raise ValueError("X holds tokens or categories; a support distribution machine needs numbers as features.")
        if (members.sizes == 0).any():
            raise ValueError(f"set {int(members.sizes.argmin())} is empty: it is no sample of a distribution.")
        values = self.encoder_.deviations(members.columns)
        missing = np.isnan(values)
        if missing.any():
            row, column = (int(i) for i in np.argwhere(missing)[0])
            raise ValueError(
                f"features must be finite: {place(row, members.offsets)}, feature {column} is missing (NaN); "
                "fill it in first."
            )
        return replace(members, weights=None).layout(torch.from_numpy(values).float())

    def _octaves(self) -> range:
        return range(self.octaves[0], self.octaves[1] + 1)

    def _bandwidth(self, octave: int) -> float:
        return self._distance * 2.0**octave

    def _embed(self, sets: Sets) -> dict[int, np.ndarray]:
        """Mean embedding of each set for every octave, (N, 2 features): cosines and sines by doubling angles."""
        found: dict[int, list[torch.Tensor]] = {octave: [] for octave in self._octaves()}
        widest = self._frequencies / self._bandwidth(self.octaves[1])
        for members in sets:  # one at a time stays in cache: 2.4 times as fast as 16
            angle = members @ widest
            cos, sin = angle.cos(), angle.sin_()
            for octave in reversed(self._octaves()):
                found[octave].append(torch.cat([cos.mean(0), sin.mean(0)]))
                sin.mul_(cos).mul_(2)
                cos.square_().mul_(2).sub_(1)
        length = np.sqrt(self._frequencies.shape[1])
        return {octave: torch.stack(parts).double().numpy() / length for octave, parts in found.items()}

    def _inner(self, octave: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The kernel of the mean embeddings of these training sets, (n, n), and its diagonal."""
        points = self._points[octave][rows]
        inner = points @ points.T
        return inner, inner.diagonal().copy()

    def _distances(self, octave: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances of the mean embeddings, (n, n), and their squared lengths, (n,)."""
        inner, own = self._inner(octave, rows)
        return squared_distances(inner, own, own), own

    # ------------------------------------------------------------------------------------------------- the choice

    def _errors(self, grid: list[_Choice], rows: np.ndarray, y: np.ndarray) -> dict[_Choice, float]:
        """The squared error of each choice by cross-validation on these sets, the best first."""
        found: dict[_Choice, float] = {}
        for octave in dict.fromkeys(c.octave for c in grid):
            found |= self._errors_of_octave(octave, [c for c in grid if c.octave == octave], rows, y[rows])
        return dict(sorted(found.items(), key=lambda item: item[1]))

    def _errors_of_octave(
        self, octave: int, grid: list[_Choice], rows: np.ndarray, y: np.ndarray
    ) -> dict[_Choice, float]:
        found: dict[_Choice, float] = {}
        squared, _ = self._distances(octave, rows)
        unit = median_distance(squared)
        for width in dict.fromkeys(c.width for c in grid):
            ridges = [c.ridge for c in grid if c.width == width]
            errors = self._errors_of_kernel(outer_kernel(squared, width, unit), ridges, y)
            found |= {_Choice(octave, width, ridge): error for ridge, error in zip(ridges, errors, strict=True)}
        return found

    def _errors_of_kernel(self, kernel: np.ndarray, ridges: list[float], y: np.ndarray) -> list[float]:
        fold, total = np.arange(len(y)) % min(self.folds, len(y)), np.zeros(len(ridges))
        for k in range(int(fold.max()) + 1):
            seen, held = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
            among, across = kernel[np.ix_(seen, seen)], kernel[np.ix_(held, seen)]
            for i, ridge in enumerate(ridges):
                total[i] += float(np.square(across @ solve(among, y[seen], ridge) - y[held]).sum())
        return (total / y.size).tolist()

    def _check_size(self, count: int) -> None:
        if count < 2:
            raise ValueError(f"cross-validation needs two sets or more, found {count}.")
        limit = self.memory
        if limit is None:
            limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2e9
        needed = 4 * 8 * count**2 / 1e9  # distances, kernel, its part for training, its factor
        if needed > limit:
            raise MemoryError(
                f"{count:,} sets need matrices of {count:,} x {count:,} doubles, four at a time: {needed:,.1f} GB, but "
                f"{limit:,.1f} GB are allowed (memory=). Give at most {int((limit * 1e9 / 32) ** 0.5):,} sets; "
                "SetRegressor has no such limit."
            )


def squared_distances(inner: np.ndarray, own_a: np.ndarray, own_b: np.ndarray) -> np.ndarray:
    """Squared distances from inner products, which are overwritten, and squared lengths."""
    found = own_a[:, None] + own_b
    found -= np.multiply(inner, 2, out=inner)
    return np.maximum(found, 0, out=found)


def median_distance(squared: np.ndarray) -> float:
    """The median of at most 512 x 512 squared distances; 1 where all are 0."""
    return float(np.median(squared[:512, :512][~np.eye(len(squared[:512]), dtype=bool)])) or 1.0


def outer_kernel(squared: np.ndarray, width: float, unit: float) -> np.ndarray:
    """Gaussian kernel of squared distances."""
    kernel = squared * (-0.5 / (width**2 * unit))
    return np.exp(kernel, out=kernel)


def solve(kernel: np.ndarray, y: np.ndarray, ridge: float) -> np.ndarray:
    """Dual weights of ridge regression."""
    matrix = kernel.copy(order="F")  # which is factorised in place; in another order it would be copied again
    matrix[np.diag_indices_from(matrix)] += ridge
    try:
        return cho_solve(cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False), y, check_finite=False)
    except LinAlgError:  # equal sets, and a ridge below rounding: as if the kernel said nothing
        return np.zeros_like(y)


def neighbours(ridges: tuple[float, ...], best: float) -> list[float]:
    """The best ridge and those beside it."""
    place = sorted(ridges).index(best)
    return sorted(ridges)[max(place - 1, 0) : place + 2]
