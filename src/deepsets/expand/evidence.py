"""Features of pairs of a query and a candidate: common sets, vector similarity, frequency."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

NEIGHBOURS = 20
_TINY = 1e-5


class QueryEvidence(NamedTuple):
    """What all candidates of one query share.

    Attributes
    ----------
    query : ndarray of shape (n,)
        Ids of the members.
    without : int or None
        A set that is left out.
    holds : ndarray of shape (T, n)
        Whether set t holds each member.
    weights : ndarray of shape (T, 5)
        Five weightings of the sets.
    cosines : ndarray of shape (V,)
        Cosine of all elements to the query.

    """

    query: np.ndarray
    without: int | None
    holds: np.ndarray
    weights: np.ndarray
    cosines: np.ndarray


class Evidence:
    """Compute features of pairs of a query and a candidate.

    All features taken from sets are sums over sets, of a weight of set t that depends on the query, times whether the
    candidate is in t. `encode(query, without)` names a set whose weight is 0 and that no count includes, so that
    one can train on that set itself. Nothing depends on the order of the query.

    Parameters
    ----------
    members : csr_array of shape (T, V)
        1 where element v is in set t.
    traits : ndarray of shape (V, K)
        Features of elements by themselves.
    table : ndarray of shape (V, D)
        Vectors of length 1, or 0 for elements without.

    Examples
    --------
    >>> members = sp.csr_array(np.array([[1, 1, 1, 0], [0, 0, 1, 1]], dtype=np.float32))  # two sets of four elements
    >>> evidence = Evidence(members, np.zeros((4, 1)), np.eye(4, dtype=np.float32))
    >>> evidence(evidence.encode(np.array([0, 1])), np.array([2, 3])).shape
    (2, 39)

    """

    def __init__(self, members: sp.csr_array, traits: np.ndarray, table: np.ndarray) -> None:
        self.members, self.traits, self.table = members, traits, table
        self.of = sp.csr_array(members.T)  # (V, T)
        self.count = np.asarray(self.of.sum(1)).ravel()
        self.known = np.linalg.norm(table, axis=1) > 0
        self.centres = unit(np.asarray(members @ table))  # (T, D)
        self.size = float(members.sum() / members.shape[0])

    def encode(self, query: np.ndarray, without: int | None = None) -> QueryEvidence:
        """Compute what all candidates of a query share."""
        holds = self.of[query].toarray().T
        direction = unit(self.table[query].sum(0))
        nearness = self.centres @ direction
        if without is not None:
            holds[without], nearness[without] = 0, -np.inf
        n = holds.sum(1)
        share = self.size / len(self.count)
        bayes = np.log1p(n / (2 * share)) - np.log1p((len(query) - n) / (2 - 2 * share)) + np.log1p(len(query) / 2)
        soft = [_softmax(nearness / 0.05), _softmax(nearness / 0.1), _softmax(nearness / 0.1 + 1.5 * n)]
        weights = np.stack([n, np.where(n > 0, bayes, 0), *soft], 1, dtype=np.float32)
        return QueryEvidence(query, without, holds, weights, self.table @ direction)

    def quick_scores(self, encoded: QueryEvidence) -> np.ndarray:
        """Quick score of all elements, (V,), by which candidates are preselected."""
        return np.log(self.of @ encoded.weights[:, 4] + 1e-4) + 8 * encoded.cosines

    def __call__(self, encoded: QueryEvidence, candidates: np.ndarray | None = None) -> np.ndarray:
        """Compute the features of some candidates, or of all elements: (C, F)."""
        chosen = slice(None) if candidates is None else candidates
        of, table, count = (x[chosen] for x in (self.of, self.table, self.count))
        query, holds, weights = encoded.query, encoded.holds, encoded.weights
        query_count = self.count[query]
        if encoded.without is not None:
            left_out = self.members[[encoded.without]].toarray()[0]
            count, query_count = count - left_out[chosen], query_count - left_out[query]
        sets = self.members.shape[0]
        both = of @ holds  # (C, n) how many sets hold the candidate and the member
        surprise = np.log((both + 0.1) / (np.outer(count + 0.5, query_count + 0.5) / sets + 0.1))
        summed = of @ weights
        columns = [
            np.log1p(summed[:, 0]),
            summed[:, 1],
            summed[:, 1] / (count + 1),
            np.log(summed[:, 2:] + _TINY),
            np.log(summed[:, 2:] + _TINY / 10) - np.log((count + 0.3) / sets)[:, None],
            _spread(both / (query_count + 1)),
            _spread(surprise),
            (both > 0).mean(1),
            _spread(table @ self.table[query].T),
            encoded.cosines[chosen],
            table @ self._further(encoded),
            np.log1p(count),
            count == 0,
            self.known[chosen],
            self.traits[chosen],
        ]
        shared = self._of_query(query, query_count, weights)
        wide = np.broadcast_to(shared, (len(count), len(shared)))
        return np.column_stack([*columns, wide]).astype(np.float32)

    def _further(self, encoded: QueryEvidence) -> np.ndarray:
        """Direction of the query, moved halfway to the elements that are nearest to it."""
        nearest = np.argpartition(-encoded.cosines, min(NEIGHBOURS, len(self.table) - 1))[:NEIGHBOURS]
        return unit(unit(self.table[encoded.query].sum(0)) + 0.5 * unit(self.table[nearest].sum(0)))

    def _of_query(self, query: np.ndarray, query_count: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Features of the query itself: how frequent its members are, how near to each other."""
        logs, soft, n = np.log1p(query_count), weights[:, 2], len(query)
        among = self.table[query] @ self.table[query].T
        together = (among.sum() - np.trace(among)) / max(n * (n - 1), 1)
        surprise = -(soft * np.log(soft + 1e-9)).sum()
        frequent = [logs.mean(), logs.min(), logs.max(), (query_count == 0).mean()]
        traits = self.traits[query]
        nearby = [soft.max(), surprise, together, self.known[query].mean()]
        return np.array([*frequent, weights[:, 0].max(), *nearby, *traits.mean(0), *traits.max(0)])


def _spread(values: np.ndarray) -> np.ndarray:
    """Summarise over the query, (C, n) -> (C, 4): mean, largest, second largest and smallest."""
    ordered = np.sort(values, 1)
    return np.column_stack([values.mean(1), ordered[:, -1], ordered[:, -2:][:, 0], ordered[:, 0]])


def _softmax(x: np.ndarray) -> np.ndarray:
    top = x.max()
    weights = np.exp(x - (top if np.isfinite(top) else 0))
    return weights / max(weights.sum(), 1e-30)


def unit(rows: np.ndarray) -> np.ndarray:
    """Scale rows to length 1; rows of 0 stay."""
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), np.finfo(np.float32).tiny)


def whiten(vectors: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Remove the mean and the first principal direction of vectors, and reduce the differences of the other variances.

    Parameters
    ----------
    vectors : ndarray of shape (V, D)
        Vectors of the elements.
    known : ndarray of bool, shape (V,)
        Which elements have one.

    Returns
    -------
    ndarray of shape (V, D - 1)
        Rows of length 1, and 0 where nothing is known.

    """
    if not known.any() or vectors.shape[1] < 2:
        return np.where(known[:, None], unit(vectors), 0).astype(np.float32)
    centred = vectors - vectors[known].mean(0)
    size, directions = np.linalg.eigh(centred[known].T.astype(np.float64) @ centred[known])  # by rising variance
    scaled = centred @ (directions[:, :-1] / np.maximum(size[:-1], size[-1] * 1e-9) ** 0.35)
    return np.where(known[:, None], unit(scaled), 0).astype(np.float32)
