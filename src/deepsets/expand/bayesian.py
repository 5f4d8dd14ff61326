"""Bayesian Sets, with the Beta-Binomial and the Gauss-inverse-Wishart model (Deep Sets, appendix D)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.linalg import cho_factor, cho_solve
from scipy.special import gammaln, multigammaln

from ..sets import Sets
from .base import BaseExpander, Members, Rows, Validation
from .cooccurrence import membership
from .vocabulary import as_dense

PRIOR_ROWS = 0.1  # rows that the prior mean counts for: few, since a set may lie far from the mean of all items


class BayesianSets(BaseExpander):
    r"""Bayesian Sets: how much likelier an element is once the query has been seen (Deep Sets, appendix D).

    :math:`s(x|X) = \log p(X ∪ \{x\}) − \log p(X) − \log p(\{x\})`, in closed form; nothing is trained. Features (or
    directions) in which no two items differ are left out.

    Parameters
    ----------
    model : {"auto", "beta", "gauss"}, default="auto"
        "beta": Beta-Binomial, for features that are 0 or 1 (dense or sparse). "gauss": Gauss-inverse-Wishart, for real
        features. "auto": "beta" if all features are 0 or 1. For items without features, the sets that hold them are
        the features.
    strength : float, default=2.0
        c, the number of elements that the prior counts for. Beta: :math:`α = c m` and :math:`β = c (1 − m)`, with m
        the mean of a feature over the items. Gauss: :math:`ν = D + 1 + c` and :math:`λ = 0.1`, and the items' mean and
        covariance are expected of :math:`μ` and :math:`Σ`.

    Examples
    --------
    >>> expander = BayesianSets().fit([["oak", "elm"], ["elm", "fir", "oak"], ["lion", "puma", "tiger"]])
    >>> [found.element for found in expander.expand(["oak", "elm"], k=1)]
    ['fir']
    >>> expander.set_score(["oak", "elm"]) > expander.set_score(["oak", "lion"])
    True

    """

    _needs_sets = False

    def __init__(self, model: str = "auto", strength: float = 2.0) -> None:
        self.model = model
        self.strength = strength

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: Validation) -> None:
        if self.model not in ("auto", "beta", "gauss"):
            raise ValueError(f"model must be 'auto', 'beta' or 'gauss', found {self.model!r}.")
        if not self.strength > 0:
            raise ValueError(f"strength must be positive, found {self.strength}.")
        table, self.features_ = self.features_, None
        if table is None:
            if sets.total == 0:
                raise ValueError("nothing is known about the items: give sets, or items with features.")
            table = membership(sets, len(self.vocabulary_))
        binary = _is_binary(table)
        if self.model == "beta" and not binary:
            raise ValueError("model='beta' needs features that are 0 or 1; model='gauss' is for real features.")
        self.kind_ = self.model if self.model != "auto" else "beta" if binary else "gauss"
        if self.kind_ == "beta":
            self.table_: Rows = _as_sparse(table)
            self.prior_ = _beta_prior(self.table_, self.strength)  # (2, D)
        else:
            dense = as_dense(table).astype(np.float64)
            self.mean_ = dense.mean(0)
            self.whiten_ = _gauss_whitening(dense - self.mean_, self.strength)  # (D, r)
            self.table_ = (dense - self.mean_) @ self.whiten_

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        return self._score(queries, self.table_)

    def _score_some(self, queries: list[Members], candidates: Members, z: np.ndarray | None) -> np.ndarray:
        return self._score(queries, self._table_rows(candidates))

    def set_score(self, query: Any) -> float:
        r"""Score how well the members of a set go together: :math:`S(X) = \log p(X) − Σ_m \log p(\{x_m\})`."""
        rows = self._table_rows(self._members(query, "the query"))
        if self.kind_ == "beta":
            return _beta_set_score(rows, self.prior_)
        return _gauss_set_score(rows, self.strength)

    def _score(self, queries: list[Members], candidates: Rows) -> np.ndarray:
        rows = [self._table_rows(query) for query in queries]
        if self.kind_ == "beta":
            return _beta_scores(rows, candidates, self.prior_)
        return np.stack([_gauss_scores(query, candidates, self.strength) for query in rows])

    def _table_rows(self, members: Members) -> Rows:
        """Ids, or rows of features as they were given, as rows like those of the table."""
        if members.ndim == 1:
            return self.table_[members]
        if self.kind_ == "gauss":
            return (as_dense(members) - self.mean_) @ self.whiten_
        if not _is_binary(members):
            raise ValueError("this BayesianSets was fitted on features that are 0 or 1, but other numbers were given.")
        return _as_sparse(members)


def _is_binary(table: Rows) -> bool:
    numbers = table.data if sp.issparse(table) else table
    return bool(np.all((numbers == 0) | (numbers == 1)))


def _as_sparse(table: Rows) -> sp.csr_array:
    """CSR with its columns in order: equal rows add up in the same order, so their scores tie exactly."""
    out = sp.csr_array(table, dtype=np.float32, copy=False)
    if not out.has_sorted_indices:
        out = out.sorted_indices()
    return out


# ---------------------------------------------------------------- Beta-Binomial: features that are 0 or 1


def _beta_prior(table: sp.csr_array, strength: float) -> np.ndarray:
    r"""(2, D):  $α = c m$ and $β = c (1 − m)$, with m the mean of each feature."""
    mean = np.asarray(table.sum(0), dtype=np.float64).ravel() / table.shape[0]
    return strength * np.stack([mean, 1 - mean])


def _beta_scores(queries: list[sp.csr_array], candidates: sp.csr_array, prior: np.ndarray) -> np.ndarray:
    r"""(Q, C), as $s(x|X) = Σ_j \mathrm{off}_j + x · (\mathrm{on} − \mathrm{off})$: one sparse product for all queries.

    A feature that is 1 adds  $\mathrm{on} = \log \frac{α + M^+}{α + β + M} − \log \frac{α}{α + β}$, one that is 0 the
    same with β and $M^-$.
    """
    alpha, beta = _varying(prior)
    weights = np.zeros((len(queries), prior.shape[1]))
    constants = np.zeros(len(queries))
    for q, rows in enumerate(queries):
        size = rows.shape[0]
        ones = np.asarray(rows.sum(0), dtype=np.float64).ravel()[_varies(prior)]
        total = np.log((alpha + beta) / (alpha + beta + size))
        on, off = np.log1p(ones / alpha) + total, np.log1p((size - ones) / beta) + total
        weights[q, _varies(prior)], constants[q] = on - off, off.sum()
    weights = weights.astype(candidates.dtype)
    if len(queries) == 1:
        out = (candidates @ weights[0])[None]
    else:
        found = torch.from_numpy(candidates @ np.ascontiguousarray(weights.T))
        out = found.T.contiguous().numpy()  # in blocks: a third of NumPy's time
    out += constants[:, None].astype(out.dtype)
    return out


def _beta_set_score(rows: sp.csr_array, prior: np.ndarray) -> float:
    r"""$S(X) = \log p(X) − Σ_m \log p(\{x_m\})$, with $p(X) = \prod_j B(α + M^+, β + M^-) / B(α, β)$."""
    alpha, beta = _varying(prior)
    size = rows.shape[0]
    ones = np.asarray(rows.sum(0), dtype=np.float64).ravel()[_varies(prior)]
    together = gammaln(alpha + ones) - gammaln(alpha) + gammaln(beta + size - ones) - gammaln(beta)
    together += gammaln(alpha + beta) - gammaln(alpha + beta + size)
    alone = ones * np.log(alpha / (alpha + beta)) + (size - ones) * np.log(beta / (alpha + beta))
    return float((together - alone).sum())


def _varies(prior: np.ndarray) -> np.ndarray:
    varies: np.ndarray = np.all(prior > 0, axis=0)
    return varies


def _varying(prior: np.ndarray) -> np.ndarray:
    return prior[:, _varies(prior)]


# ---------------------------------------------------------------- Gauss-inverse-Wishart: real features
#
# All functions take whitened rows: prior mean 0 and Ψ = 1 (a score does not change under a linear map of the space).
# So what a query adds to Ψ has low rank, and all candidates are scored with one product (C, r) x (r, n + 2).


def _gauss_whitening(centred: np.ndarray, strength: float) -> np.ndarray:
    """(D, r), such that Ψ = c · covariance becomes 1; directions without variance are left out."""
    variances, directions = np.linalg.eigh(centred.T @ centred / len(centred))
    kept = variances > 1e-10 * max(variances.max(), np.finfo(float).tiny)
    if not kept.any() or variances.max() == 0:
        raise ValueError("all items have the same features: there is nothing to tell them apart.")
    return directions[:, kept] / np.sqrt(strength * variances[kept])


def _gauss_scores(query: np.ndarray, candidates: np.ndarray, strength: float) -> np.ndarray:
    """(C,):  s(x|X) = log p(X ∪ {x}) − log p(X) − log p({x})."""
    (n, width), nu = query.shape, _degrees(query, strength)
    low, mean = _low_rank(query)
    inner = cho_factor(np.eye(len(low)) + low @ low.T)
    along = (candidates @ np.vstack([low, mean[None]]).T).T  # (n + 2, C)
    squares = np.einsum("ij,ij->i", candidates, candidates)
    away = squares - 2 * along[-1] + mean @ mean  # |x - mean|²
    shifted = along[:-1] - (low @ mean)[:, None]
    away -= (shifted * cho_solve(inner, shifted)).sum(0)  # in the metric of Ψ_n, by Woodbury's identity
    posterior = PRIOR_ROWS + n
    log_det = 2 * np.log(inner[0].diagonal()).sum()
    growth = np.log1p(posterior / (posterior + 1) * np.maximum(away, 0))
    joint = _log_constant(n + 1, width, nu) - (nu + n + 1) / 2 * (log_det + growth)
    together = _log_constant(n, width, nu) - (nu + n) / 2 * log_det
    alone = _log_constant(1, width, nu) - (nu + 1) / 2 * np.log1p(PRIOR_ROWS / (PRIOR_ROWS + 1) * squares)
    return joint - together - alone


def _gauss_set_score(query: np.ndarray, strength: float) -> float:
    """S(X) = log p(X) − Σ log p({x_m})."""
    (n, width), nu = query.shape, _degrees(query, strength)
    low, _ = _low_rank(query)
    log_det = np.linalg.slogdet(np.eye(len(low)) + low @ low.T)[1]
    together = _log_constant(n, width, nu) - (nu + n) / 2 * log_det
    squares = np.einsum("ij,ij->i", query, query)
    alone = _log_constant(1, width, nu) - (nu + 1) / 2 * np.log1p(PRIOR_ROWS / (PRIOR_ROWS + 1) * squares)
    return float(together - alone.sum())


def _degrees(rows: np.ndarray, strength: float) -> float:
    return rows.shape[1] + 1 + strength


def _low_rank(query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A (n + 1, r) with Ψ_n = 1 + AᵀA, and the posterior mean."""
    n, mean = len(query), query.mean(0)
    low = np.vstack([query - mean, np.sqrt(PRIOR_ROWS * n / (PRIOR_ROWS + n)) * mean[None]])
    return low, n / (PRIOR_ROWS + n) * mean


def _log_constant(n: int, width: int, nu: float) -> float:
    """What log p of n rows holds beside the determinant."""
    gammas = multigammaln((nu + n) / 2, width) - multigammaln(nu / 2, width)
    return float(gammas - n * width / 2 * np.log(np.pi) + width / 2 * np.log(PRIOR_ROWS / (PRIOR_ROWS + n)))
