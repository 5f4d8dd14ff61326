"""Kernel regression on Rényi divergences of sets, estimated by nearest neighbours (Póczos et al. 2012)."""

from math import lgamma
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepsets.sets import Sets

ALPHAS, WIDTHS = (0.5, 0.8, 0.9, 0.99), (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
K = 3  # which neighbour


def renyi_regression(sets: Sets, y: Tensor, asked: Sets, members: int = 100) -> tuple[Tensor, dict[str, Any]]:
    """Predict for the sets `asked`, (B,), from the first `members` of each set, and return what was chosen.

    >>> source = torch.Generator().manual_seed(0)
    >>> scales = torch.linspace(0.5, 2, 60)
    >>> sets = Sets.from_list([s * torch.randn(100, 2, generator=source) for s in scales])
    >>> found, _ = renyi_regression(sets[::2], scales[::2], sets[1::2])
    >>> bool((found - scales[1::2]).abs().mean() < 0.15)
    True

    The kernel is exp(−D / w) with D of both directions, without the negative part of its spectrum; α, w (times the
    median D) and the ridge are chosen by three-fold cross-validation.
    """
    known, new = (torch.stack([x[:members] for x in given]) for given in (sets, asked))
    among, there, back = _neighbours(known, known), _neighbours(known, new), _neighbours(new, known)
    own = among[torch.arange(len(sets)), :, torch.arange(len(sets))]
    new_own = torch.cat([_neighbours(one[None], one[None])[:, :, 0] for one in new])
    centre, wanted, fold = float(y.mean()), (y - y.mean()).double().numpy(), np.arange(len(sets)) % 3
    best: tuple[float, Any] = (np.inf, None)
    for alpha in ALPHAS:
        one = _divergences(own, among, alpha, sets.width)
        distance, unit = np.maximum(one + one.T, 0), np.median(np.abs(one + one.T))
        for width in WIDTHS:
            values, axes = np.linalg.eigh(np.exp(-distance / (width * unit)))
            kernel, project = (axes * values.clip(min=0)) @ axes.T, (axes * (values > 0)) @ axes.T
            for ridge in RIDGES:
                error = 0.0
                for seen, held in ((fold != f, fold == f) for f in range(3)):
                    answer = kernel[np.ix_(held, seen)] @ _solve(kernel[np.ix_(seen, seen)], wanted[seen], ridge)
                    error += float(np.square(answer - wanted[held]).sum())
                if error < best[0]:
                    best = error, (alpha, width, ridge, unit, kernel, project)
    alpha, width, ridge, unit, kernel, project = best[1]
    across = _divergences(own, there, alpha, sets.width).T + _divergences(new_own, back, alpha, sets.width)
    found = np.exp(-np.maximum(across, 0) / (width * unit)) @ project @ _solve(kernel, wanted, ridge) + centre
    return torch.from_numpy(found).float(), {"choice": [alpha, width, ridge], "cv": best[0] / len(y)}


def _neighbours(points: Tensor, others: Tensor) -> Tensor:
    """Log distance of each member to its k-th neighbour in every other set: (n, m, d), (n', m, d) -> (n, m, n').

    A member is not its own neighbour where both are the same sets.
    """
    found = []
    for i, own in enumerate(points):
        distances = torch.cdist(own, others.flatten(0, 1)).view(len(own), len(others), -1)
        if points is others or len(points) == len(others) == 1:
            distances[:, i].fill_diagonal_(torch.inf)
        found.append(distances.kthvalue(K, dim=2).values.clamp_min(1e-12).log())
    return torch.stack(found)


def _divergences(own: Tensor, cross: Tensor, alpha: float, dimension: int) -> np.ndarray:
    """Rényi-α divergences, (n, n'), from log distances within each set, (n, m), and to the others, (n, m, n')."""
    members = own.shape[1]
    log_ratio = np.log((members - 1) / members) + dimension * (own[:, :, None] - cross)
    log_mean = ((1 - alpha) * log_ratio).double().logsumexp(1) - np.log(members)
    constant = 2 * lgamma(K) - lgamma(K - alpha + 1) - lgamma(K + alpha - 1)
    return ((log_mean + constant) / (alpha - 1)).numpy()


def _solve(kernel: np.ndarray, y: np.ndarray, ridge: float) -> np.ndarray:
    return np.linalg.solve(kernel + ridge * np.eye(len(kernel)), y)
