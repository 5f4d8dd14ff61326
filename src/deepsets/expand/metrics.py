"""Ranking metrics, and the evaluation of expanders on held-out members (Deep Sets, section 4.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .base import BaseExpander

Ids = Sequence[int] | np.ndarray
_SCORES = 4_000_000  # in memory at a time, when many queries are evaluated


def ranks(scores: np.ndarray, truths: Iterable[Ids], exclude: Iterable[Ids] | None = None) -> list[np.ndarray]:
    """Rank the elements that should be found among all candidates.

    Candidates with equal scores share the mean of their ranks, so that the order of the vocabulary has no effect.

    Parameters
    ----------
    scores : ndarray of shape (Q, V)
        Scores of all candidates for each query; higher is better.
    truths : iterable of Q sequences of int
        For each query the ids that should be found.
    exclude : iterable of Q sequences of int, optional
        For each query the ids that are no candidates, such as its own members.

    Returns
    -------
    list of ndarray
        For each query the ranks of its truths, from 1.

    Examples
    --------
    >>> ranks(np.array([[0.9, 0.1, 0.5, 0.7]]), truths=[[2, 1]], exclude=[[0]])  # 3 and 2 are ranked before 1
    [array([2., 3.])]
    >>> ranks(np.array([[0.0, 0.0, 0.0]]), truths=[[0]])  # a tie
    [array([2.])]

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
        left = np.delete(row, out)
        above = (left[None] > row[truth][:, None]).sum(1) if len(truth) < 8 else _count(left, row[truth], "right")
        with_it = (left[None] >= row[truth][:, None]).sum(1) if len(truth) < 8 else _count(left, row[truth], "left")
        found.append((above + 1 + with_it) / 2)
    return found


def _count(left: np.ndarray, values: np.ndarray, side: Any) -> np.ndarray:
    return len(left) - np.searchsorted(np.sort(left), values, side=side)


def recall_at(ranks: Sequence[np.ndarray], k: int) -> float:
    """Compute recall@k: the share of a query's truths among the first k, averaged over queries.

    Parameters
    ----------
    ranks : sequence of ndarray
        As returned by `ranks`.
    k : int
        Length of the list that is looked at.

    Returns
    -------
    float

    Examples
    --------
    >>> recall_at([np.array([1, 12]), np.array([3, 4])], k=10)
    0.75

    """
    _check(ranks)
    return float(np.mean([np.mean(r <= k) for r in ranks]))


def mean_reciprocal_rank(ranks: Sequence[np.ndarray]) -> float:
    """Compute the mean of 1 / rank over all truths of all queries.

    Parameters
    ----------
    ranks : sequence of ndarray
        As returned by `ranks`. All truths count, not only the first of each query.

    Returns
    -------
    float

    Examples
    --------
    >>> mean_reciprocal_rank([np.array([1, 2]), np.array([4, 4])])
    0.5

    """
    _check(ranks)
    return float(np.mean(1 / np.concatenate(ranks)))


def median_rank(ranks: Sequence[np.ndarray]) -> float:
    """Compute the median rank over all truths of all queries.

    Parameters
    ----------
    ranks : sequence of ndarray
        As returned by `ranks`.

    Returns
    -------
    float

    Examples
    --------
    >>> median_rank([np.array([1, 2]), np.array([4, 9])])
    3.0

    """
    _check(ranks)
    return float(np.median(np.concatenate(ranks)))


def evaluate(
    expander: BaseExpander,
    sets: Iterable[Iterable[Any]],
    k: int = 10,
    seed: int = 0,
    *,
    training_sets: Iterable[Iterable[Any]] | None = None,
) -> list[dict[str, Any]]:
    """Evaluate an expander on held-out members, beside popularity and item-item similarity.

    From each set with two or more known members one member is held out at random; the others are the query, and the
    held-out member is ranked among all elements outside of the query.

    Parameters
    ----------
    expander : BaseExpander
        A fitted expander without z.
    sets : iterable of iterables
        Sets that the expander was not fitted on. Members that are not in the vocabulary are ignored.
    k : int, default=10
        Length of the lists.
    seed : int, default=0
        Decides which members are held out.
    training_sets : iterable of iterables, optional
        The sets of the fit, to fit the two baselines on. An `Expander` keeps them as parts and does not need this.

    Returns
    -------
    list of dict
        A row for the expander, then for "popularity" and "item-item" where they are known: `method`, `recall@k`,
        `mrr`, `coverage` (the share of the vocabulary that is in the first k of some query) and `queries`.

    Examples
    --------
    >>> from deepsets.expand import BayesianSets
    >>> baskets = [["milk", "bread"], ["bread", "butter", "milk"], ["nails", "hammer"], ["hammer", "saw", "nails"]] * 3
    >>> expander = BayesianSets().fit(baskets)
    >>> rows = evaluate(expander, [["milk", "butter"], ["saw", "hammer"]], k=2, training_sets=baskets)
    >>> [row["method"] for row in rows]
    ['BayesianSets', 'popularity', 'item-item']

    """
    from .cooccurrence import ItemItem, Popularity

    rng = np.random.default_rng(seed)
    queries, truths = [], []
    for members in sets:
        ids = rng.permutation(sorted({i for m in members if (i := expander.find(m)) is not None}))
        if len(ids) >= 2:
            queries.append(np.sort(ids[1:]))
            truths.append(ids[:1])
    if not queries:
        raise ValueError("no set has two members of the vocabulary: there is no member to hold out.")
    methods: dict[str, BaseExpander] = {type(expander).__name__: expander}
    methods |= getattr(expander, "baselines", dict)()
    if training_sets is not None:
        lists = [list(members) for members in training_sets]
        for name, baseline in {"popularity": Popularity(), "item-item": ItemItem()}.items():
            methods[name] = baseline.fit(lists, items=expander.vocabulary_)
    return [{"method": name, **_measure(method, queries, truths, k)} for name, method in methods.items()]


def _measure(expander: BaseExpander, queries: list[np.ndarray], truths: list[np.ndarray], k: int) -> dict[str, Any]:
    words = expander.vocabulary_
    step, found, seen = max(1, _SCORES // len(words)), [], set()
    for start in range(0, len(queries), step):
        some = queries[start : start + step]
        scores = np.array(expander.scores([[words[i] for i in query] for query in some]))
        found += ranks(scores, truths[start : start + step], some)
        for row, query in zip(scores, some, strict=True):
            row[query] = -np.inf
            seen.update(np.argpartition(-row, min(k, len(row) - 1))[:k].tolist())
    return {
        f"recall@{k}": recall_at(found, k),
        "mrr": mean_reciprocal_rank(found),
        "coverage": len(seen) / len(words),
        "queries": len(queries),
    }


def _check(ranks: Sequence[np.ndarray]) -> None:
    empty = [q for q, r in enumerate(ranks) if len(r) == 0]
    if not ranks or empty:
        raise ValueError(f"query {empty[0]} has no truths." if empty else "there are no queries.")
