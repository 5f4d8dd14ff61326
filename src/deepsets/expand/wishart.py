r"""The Gauss-inverse-Wishart model of Bayesian Sets: real features, $x ∼ N(μ, Σ)$ with a conjugate prior.

All functions work on whitened rows: prior mean 0 and Ψ = 1 (a score does not change under a linear map of the space).
So what a query adds to Ψ is a matrix of low rank, and all candidates are scored with one product (C, r) x (r, n + 2).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import multigammaln

MEAN = 0.1  # rows that the prior mean counts for: little, since a set may lie far from the middle of all items


def whitening(centred: np.ndarray, strength: float) -> np.ndarray:
    """(D, r), such that Ψ = c · covariance becomes 1; directions without variance are left out."""
    variances, directions = np.linalg.eigh(centred.T @ centred / len(centred))
    kept = variances > 1e-10 * max(variances.max(), np.finfo(float).tiny)
    if not kept.any() or variances.max() == 0:
        raise ValueError("all items have the same features: there is nothing to tell them apart.")
    return directions[:, kept] / np.sqrt(strength * variances[kept])


def scores(query: np.ndarray, candidates: np.ndarray, strength: float) -> np.ndarray:
    """(C,):  s(x|X) = log p(X ∪ {x}) − log p(X) − log p({x})."""
    (n, width), nu = query.shape, _nu(query, strength)
    low, mean = _added(query)
    inner = cho_factor(np.eye(len(low)) + low @ low.T)
    along = (candidates @ np.vstack([low, mean[None]]).T).T  # (n + 2, C)
    squares = np.einsum("ij,ij->i", candidates, candidates)
    away = squares - 2 * along[-1] + mean @ mean  # |x - mean|²
    shifted = along[:-1] - (low @ mean)[:, None]
    away -= (shifted * cho_solve(inner, shifted)).sum(0)  # in the metric of Ψ_n, by Woodbury's identity
    posterior = MEAN + n
    log_det = 2 * np.log(inner[0].diagonal()).sum()
    growth = np.log1p(posterior / (posterior + 1) * np.maximum(away, 0))
    joint = _constant(n + 1, width, nu) - (nu + n + 1) / 2 * (log_det + growth)
    together = _constant(n, width, nu) - (nu + n) / 2 * log_det
    alone = _constant(1, width, nu) - (nu + 1) / 2 * np.log1p(MEAN / (MEAN + 1) * squares)
    return joint - together - alone


def set_score(query: np.ndarray, strength: float) -> float:
    """S(X) = log p(X) − Σ log p({x_m})."""
    (n, width), nu = query.shape, _nu(query, strength)
    low, _ = _added(query)
    log_det = np.linalg.slogdet(np.eye(len(low)) + low @ low.T)[1]
    together = _constant(n, width, nu) - (nu + n) / 2 * log_det
    squares = np.einsum("ij,ij->i", query, query)
    alone = _constant(1, width, nu) - (nu + 1) / 2 * np.log1p(MEAN / (MEAN + 1) * squares)
    return float(together - alone.sum())


def _nu(rows: np.ndarray, strength: float) -> float:
    return rows.shape[1] + 1 + strength


def _added(query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A (n + 1, r) with Ψ_n = 1 + AᵀA, and the posterior mean."""
    n, mean = len(query), query.mean(0)
    low = np.vstack([query - mean, np.sqrt(MEAN * n / (MEAN + n)) * mean[None]])
    return low, n / (MEAN + n) * mean


def _constant(n: int, width: int, nu: float) -> float:
    """What log p of n rows holds beside the determinant."""
    gammas = multigammaln((nu + n) / 2, width) - multigammaln(nu / 2, width)
    return float(gammas - n * width / 2 * np.log(np.pi) + width / 2 * np.log(MEAN / (MEAN + n)))
