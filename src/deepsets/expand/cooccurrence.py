"""Expanders that count in which sets elements occur together: popularity, item-item similarity, EASE."""

from __future__ import annotations

import hashlib

import numpy as np
import scipy.sparse as sp

from ..sets import Sets
from .base import BaseExpander, Members, Validation

_LARGEST = 5000  # rows of a dense matrix that is inverted: 25 million numbers, some ten seconds


def membership(sets: Sets, count: int) -> sp.csr_array:
    """(count, B): 1 where an element is in a set of ids."""
    where = (sets.values.numpy(), sets.set_ids.numpy())
    return sp.csr_array((np.ones(sets.total, dtype=np.float32), where), shape=(count, len(sets)))


class Popularity(BaseExpander):
    """Score elements by the number of sets they are in, whatever the query: the least that others must beat.

    Attributes
    ----------
    counts_ : ndarray of shape (V,)
        Number of sets of each element.

    Examples
    --------
    >>> Popularity().fit([["milk", "bread"], ["bread", "nails"]]).expand(["nails"], k=1)[0].element
    'bread'

    """

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: Validation) -> None:
        self.counts_ = np.bincount(sets.values.numpy(), minlength=len(self.vocabulary_)).astype(np.float32)

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        return np.tile(self.counts_, (len(queries), 1))


class ItemItem(BaseExpander):
    r"""Score elements by how often they occur in sets with the members of the query: the cosine.

    :math:`s(x|X) = \sum_m n_{x m} / \sqrt{n_x n_m}`, where n counts sets.

    Examples
    --------
    >>> baskets = [["milk", "bread"], ["bread", "butter", "milk"], ["nails", "hammer"], ["hammer", "saw", "nails"]]
    >>> ItemItem().fit(baskets).expand(["butter", "milk"], k=1)[0].element
    'bread'

    """

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: Validation) -> None:
        self.table_ = membership(sets, len(self.vocabulary_))

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        scale = np.maximum(np.diff(self.table_.indptr), 1).astype(np.float32) ** -0.5
        of_sets = [self.table_[query].T @ scale[query] for query in queries]  # (B,) weights of the sets
        return np.stack([(self.table_ @ each) * scale for each in of_sets])


class EASE(BaseExpander):
    r"""Linear item-item model in closed form (Steck 2019, "Embarrassingly shallow autoencoders").

    Each element is predicted from the other members of its sets by ridge regression: with
    :math:`P = (X^T X + λI)^{-1}` the weights are :math:`B = −P / \mathrm{diag}(P)` off the diagonal, and
    :math:`s(x|X) = \sum_m B_{m x}`. The matrix that is inverted has as many rows as there are elements or sets,
    whichever are fewer; of more than 5,000, the most frequent elements are taken, and the others score 0.

    Parameters
    ----------
    ridge : float, default=100.0
        λ; larger values trust rare pairs less.
    intercept : bool, default=False
        Add an element that is in every set, with a ridge of 1: the frequency of an element counts beside what it goes
        with. Better for short sets of which a few elements are in many, such as shopping baskets.

    Examples
    --------
    >>> baskets = [["milk", "bread"], ["bread", "butter", "milk"], ["nails", "hammer"], ["hammer", "saw", "nails"]]
    >>> EASE(ridge=1.0).fit(baskets).expand(["milk"], k=1)[0].element
    'bread'

    """

    def __init__(self, ridge: float = 100.0, intercept: bool = False) -> None:
        self.ridge = ridge
        self.intercept = intercept

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: Validation) -> None:
        if not self.ridge > 0:
            raise ValueError(f"ridge must be positive, found {self.ridge}.")
        table = membership(sets, len(self.vocabulary_))
        counts = np.diff(table.indptr)
        # A column of √λ with the ridge λ is a column of 1 with the ridge 1.
        constant = self.ridge if self.intercept else 0.0
        if len(sets) < min(len(counts), _LARGEST):
            # With fewer sets than elements:  λP = I − Xᵀ (X Xᵀ + λI)⁻¹ X,  never formed.
            inverse = _inverse((table.T @ table).toarray() + constant, self.ridge)
            self.inverse_, self.table_ = inverse.astype(np.float32), table  # (B, B), (V, B)
            self.diagonal_ = 1 - np.asarray(table.multiply(table @ self.inverse_).sum(1)).ravel()  # λ diag(P)
            return
        self.chosen_ = np.sort(np.argsort(-counts, kind="stable")[:_LARGEST])
        kept = table[self.chosen_]
        if self.intercept:
            kept = sp.csr_array(sp.vstack([kept, np.full((1, len(sets)), np.sqrt(constant), np.float32)]))
        inverse = _inverse((kept @ kept.T).toarray(), self.ridge)
        weights = -inverse / np.diag(inverse)
        np.fill_diagonal(weights, 0)
        count = len(self.chosen_)
        self.base_ = (np.sqrt(constant) * weights[count:, :count].sum(0)).astype(np.float32)  # 0 without intercept
        self.weights_ = weights[:count, :count].astype(np.float32)

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        return self._weighted(queries, self.intercept)

    def _fit_scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        return self._weighted(queries, False)  # a frequent element does not belong for being frequent

    def _member_fits(self, others: list[Members], members: Members, z: np.ndarray | None) -> np.ndarray:
        return self._fit_scores(others, z)[np.arange(len(others)), members]

    def _weighted(self, queries: list[np.ndarray], intercept: bool) -> np.ndarray:
        if hasattr(self, "table_"):
            constant = self.ridge if intercept else 0.0
            of_sets = np.stack(
                [np.asarray(self.table_[query].sum(0)).ravel() + constant for query in queries]
            )  # (Q, B)
            out = np.asarray((self.table_ @ (of_sets @ self.inverse_).T).T) / self.diagonal_
            for row, query in zip(out, queries, strict=True):  # a member does not predict itself
                row[query] -= 1 / self.diagonal_[query] - 1
            return out.astype(np.float32)
        out = np.zeros((len(queries), len(self.vocabulary_)), np.float32)
        place = np.full(len(self.vocabulary_), -1)
        place[self.chosen_] = np.arange(len(self.chosen_))
        for row, query in zip(out, queries, strict=True):
            row[self.chosen_] = self.weights_[place[query][place[query] >= 0]].sum(0)
            if intercept:
                row[self.chosen_] += self.base_
        return out


def _inverse(gram: np.ndarray, ridge: float) -> np.ndarray:
    gram = gram.astype(np.float64)
    gram[np.diag_indices_from(gram)] += ridge
    return np.linalg.inv(gram)


class RandomExpander(BaseExpander):
    """Score elements at random: the same scores for the same query.

    Parameters
    ----------
    random_state : int, default=0
        The seed.

    Examples
    --------
    >>> expander = RandomExpander(random_state=0).fit([["oak", "elm"], ["lion", "puma"]])
    >>> len(expander.expand(["oak"], k=2))
    2

    """

    _needs_sets = False

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: Validation) -> None:
        pass

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        out = np.empty((len(queries), len(self.vocabulary_)))
        for row, ids in zip(out, queries, strict=True):
            code = hashlib.blake2b(ids.tobytes(), digest_size=8).digest()
            np.random.default_rng([self.random_state, int.from_bytes(code, "little")]).random(out=row)
        return out
