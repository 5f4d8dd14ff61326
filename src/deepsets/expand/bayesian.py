"""Bayesian Sets: how much likelier an element is once the query has been seen (Deep Sets, appendix D)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..sets import Sets
from . import beta as _beta
from . import wishart as _wishart
from .base import Expander, Query, Rows
from .input import as_dense


class BayesianSets(Expander):
    r"""Scores in closed form, nothing is trained:  $s(x|X) = \log p(X ∪ \{x\}) − \log p(X) − \log p(\{x\})$.

    >>> expander = BayesianSets().fit([["oak", "elm"], ["elm", "fir", "oak"], ["lion", "puma", "tiger"]])
    >>> [found.element for found in expander.expand(["oak", "elm"], k=1)]
    ['fir']
    >>> expander.set_score(["oak", "elm"]) > expander.set_score(["oak", "lion"])
    True

    model: "beta", Beta-Binomial, for features that are 0 or 1 (dense or sparse); "gauss", Gauss-inverse-Wishart, for
        real features; "auto": "beta" where all features are 0 or 1. Items without features have those sets as
        features in which they stand.
    strength: c, how many elements the prior counts for. Beta: $α = c m$ and $β = c (1 − m)$, with m the mean of a
        feature over the items. Gauss: $ν = D + 1 + c$ and $λ = 0.1$, and the items' mean and covariance are what
        is expected of $μ$ and $Σ$.

    Features (or directions) in which no two items differ tell nothing and are left out.
    """

    _needs_sets = False

    def __init__(self, model: str = "auto", strength: float = 2.0) -> None:
        self.model = model
        self.strength = strength

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: tuple[Sets, np.ndarray | None] | None) -> None:
        if self.model not in ("auto", "beta", "gauss"):
            raise ValueError(f"model must be 'auto', 'beta' or 'gauss', found {self.model!r}.")
        if not self.strength > 0:
            raise ValueError(f"strength must be positive, found {self.strength}.")
        table, self.features_ = self.features_, None
        if table is None:
            if sets.total == 0:
                raise ValueError("nothing is known of the items: give sets, or items with features.")
            table = membership(sets, len(self.vocabulary_))
        binary = _is_binary(table)
        if self.model == "beta" and not binary:
            raise ValueError("model='beta' needs features that are 0 or 1; model='gauss' is for real features.")
        self.kind_ = self.model if self.model != "auto" else "beta" if binary else "gauss"
        if self.kind_ == "beta":
            self.table_: Rows = _as_sparse(table)
            self.prior_ = _beta.prior(self.table_, self.strength)  # (2, D)
        else:
            dense = as_dense(table).astype(np.float64)
            self.mean_ = dense.mean(0)
            self.whiten_ = _wishart.whitening(dense - self.mean_, self.strength)  # (D, r)
            self.table_ = (dense - self.mean_) @ self.whiten_

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        return self._score(queries, self.table_)

    def _score_rows(self, queries: list[Query], candidates: Query, z: np.ndarray | None) -> np.ndarray:
        return self._score(queries, self._known(candidates))

    def _pick(self, queries: list[np.ndarray], ids: np.ndarray, z: np.ndarray | None) -> np.ndarray:
        return self._score(queries, self.table_[ids])

    def set_score(self, query: Any) -> float:
        r"""How well the members of a set go together:  $S(X) = \log p(X) − Σ_m \log p(\{x_m\})$."""
        rows = self._known(self._query(query, "the query"))
        if self.kind_ == "beta":
            return _beta.set_score(rows, self.prior_)
        return _wishart.set_score(rows, self.strength)

    def _score(self, queries: list[Query], candidates: Rows) -> np.ndarray:
        rows = [self._known(query) for query in queries]
        if self.kind_ == "beta":
            return _beta.scores(rows, candidates, self.prior_)
        return np.stack([_wishart.scores(query, candidates, self.strength) for query in rows])

    def _known(self, members: Query) -> Rows:
        """Ids, or rows of features as they came, to rows like those of the table."""
        if members.ndim == 1:
            return self.table_[members]
        if self.kind_ == "gauss":
            return (as_dense(members) - self.mean_) @ self.whiten_
        if not _is_binary(members):
            raise ValueError("this BayesianSets has features that are 0 or 1; other numbers were given.")
        return _as_sparse(members)


def membership(sets: Sets, count: int) -> sp.csr_array:
    """(count, B): 1 where an element stands in a set."""
    where = (sets.values.numpy(), sets.set_ids.numpy())
    return sp.csr_array((np.ones(sets.total, dtype=np.float32), where), shape=(count, len(sets)))


def _is_binary(table: Rows) -> bool:
    numbers = table.data if sp.issparse(table) else table
    return bool(np.all((numbers == 0) | (numbers == 1)))


def _as_sparse(table: Rows) -> sp.csr_array:
    """CSR with its columns in order: equal rows add up in the same order, so their scores tie exactly."""
    out = sp.csr_array(table, dtype=np.float32, copy=False)
    if not out.has_sorted_indices:
        out = out.sorted_indices()
    return out
