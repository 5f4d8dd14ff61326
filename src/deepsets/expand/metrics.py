"""How high the truths stand in a ranking: recall@k, mean reciprocal rank, median rank (Deep Sets, section 4.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

Ids = Sequence[int] | np.ndarray


def ranks(scores: np.ndarray, truths: Iterable[Ids], exclude: Iterable[Ids] | None = None) -> list[np.ndarray]:
    """The rank of each truth among all candidates, from 1, higher scores first; one array for each query.

    >>> ranks(np.array([[0.9, 0.1, 0.5, 0.7]]), truths=[[2, 1]], exclude=[[0]])  # 3 and 2 stand before 1
    [array([2., 3.])]
    >>> ranks(np.array([[0.0, 0.0, 0.0]]), truths=[[0]])  # a tie: the middle of the places it may have
    [array([2.])]

    scores:  (Q, V). truths: for each query the ids that should be found.
    exclude: for each query the ids that are no candidates (its own members).

    Candidates with equal scores share the mean of their places: no order of the vocabulary helps or hurts.
    """
    scores, wanted = np.asarray(scores), [np.asarray(t, dtype=np.int64) for t in truths]
    out_of = (
        [np.asarray(e, dtype=np.int64) for e in exclude] if exclude is not None else [np.array([], int)] * len(wanted)
    )
    if scores.ndim != 2 or not len(scores) == len(wanted) == len(out_of):
        raise ValueError(
            f"wanted scores of shape (queries, candidates) and as many lists of truths and excluded ids; found scores "
            f"of shape {scores.shape}, {len(wanted)} lists of truths and {len(out_of)} of excluded ids."
        )
    found = []
    for q, (row, truth, out) in enumerate(zip(scores, wanted, out_of, strict=True)):
        if np.isnan(row).any():
            raise ValueError(f"query {q}: the score of candidate {int(np.isnan(row).argmax())} is NaN.")
        if np.isin(truth, out).any():
            raise ValueError(f"query {q}: {int(truth[np.isin(truth, out)][0])} is a truth and excluded.")
        left = np.sort(np.delete(row, out))
        above = len(left) - np.searchsorted(left, row[truth], side="right")
        with_it = len(left) - np.searchsorted(left, row[truth], side="left")
        found.append((above + 1 + with_it) / 2)
    return found


def recall_at(ranks: Sequence[np.ndarray], k: int) -> float:
    """The share of a query's truths among the first k, averaged over the queries.

    >>> recall_at([np.array([1, 12]), np.array([3, 4])], k=10)
    0.75
    """
    _check(ranks)
    return float(np.mean([np.mean(r <= k) for r in ranks]))


def mean_reciprocal_rank(ranks: Sequence[np.ndarray]) -> float:
    """The mean of 1 / rank over all truths of all queries (not only the first truth of each query).

    >>> mean_reciprocal_rank([np.array([1, 2]), np.array([4, 4])])
    0.5
    """
    _check(ranks)
    return float(np.mean(1 / np.concatenate(ranks)))


def median_rank(ranks: Sequence[np.ndarray]) -> float:
    """The median rank over all truths of all queries.

    >>> median_rank([np.array([1, 2]), np.array([4, 9])])
    3.0
    """
    _check(ranks)
    return float(np.median(np.concatenate(ranks)))


def _check(ranks: Sequence[np.ndarray]) -> None:
    empty = [q for q, r in enumerate(ranks) if len(r) == 0]
    if not ranks or empty:
        raise ValueError(f"query {empty[0]} has no truths." if empty else "there are no queries.")
