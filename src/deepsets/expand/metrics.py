"""Rankings: the best candidates, the odd member, metrics, and the evaluation of expanders on held-out members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from .base import BaseExpander

Ids = Sequence[int] | np.ndarray
_SCORES = 4_000_000  # in memory at a time, when many queries are evaluated
# Elements outside of the set that must do as well as the odd member, beside a share of all (`odd_shares`). With one
# random word beside four members of a WordNet concept, Bayesian Sets named 54 to 57 of 60, none wrongly.
_LEAST = 3


class Candidate(NamedTuple):
    """An element and its score.

    Attributes
    ----------
    element : object
        The element of the vocabulary.
    score : float
        How well it goes with the query; higher is better. Scores of different expanders are not comparable.

    """

    element: Any
    score: float


class Explanation(NamedTuple):
    """Why an element is suggested for a query.

    Attributes
    ----------
    element : object
        The suggested element.
    members : list of Candidate
        The members of the query, those that the element goes with best first. The score is between 0 (like the median
        of the vocabulary) and 1 (like the best element for this member alone).
    sets : list of str
        Names of known sets that hold the element and members of the query, where the expander knows named sets.

    """

    element: Any
    members: list[Candidate]
    sets: list[str]


def top_k(scores: np.ndarray, k: int, allowed: np.ndarray) -> np.ndarray:
    """Find the places of the k largest scores.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        The scores, without NaN.
    k : int
        How many places are wanted.
    allowed : ndarray of bool, shape (n,)
        Places that may be chosen.

    Returns
    -------
    ndarray of int
        At most k places, largest score first, ties in order of place.

    Examples
    --------
    >>> top_k(np.array([1.0, 3.0, 2.0, 3.0, 2.0]), 3, np.array([True, True, True, True, True])).tolist()
    [1, 3, 2]

    """
    places = np.flatnonzero(allowed)
    found = scores[places]
    if k < len(found):
        places = places[found >= np.partition(found, len(found) - k)[len(found) - k]]  # with all ties
    return places[np.argsort(-scores[places], kind="stable")][:k]


def relative(scores: np.ndarray, value: float) -> float:
    """Place of a score between the median of all finite scores (0) and the best (1)."""
    others = scores[np.isfinite(scores)]
    if not len(others) or not np.isfinite(value):
        return 0.0
    usual, best = float(np.median(others)), max(float(others.max()), value)
    return max((value - usual) / (best - usual), 0.0) if best > usual else 0.0


def less_like(scores: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """Subtract the scores for negative examples, where these are above their mean; in standard deviations."""

    def standard(values: np.ndarray) -> np.ndarray:
        finite = values[np.isfinite(values)]
        return (values - finite.mean()) / (finite.std() or 1.0) if len(finite) else values

    return standard(scores) - np.maximum(standard(negative), 0)


def odd_member(
    expander: BaseExpander, query: Iterable[Any], z: Any = None, *, fits: np.ndarray | None = None
) -> int | None:
    """Find the one member that does not belong to the others.

    The member that fits least is odd if at least a tenth of the elements outside of the set (and at least three) would
    go with the others as well as it does, and if the others hold together: if less than a third of the elements would
    go better with the rest of them than the next member does. Of two members, none is odd, nor of two that fit equally
    little.

    Parameters
    ----------
    expander : BaseExpander
        A fitted expander.
    query : iterable
        Members, all known to the expander.
    z : array-like, optional
        What is known about the set, for an expander that was fitted with it.
    fits : ndarray, optional
        `expander.fits(query, z)`, if it is known already.

    Returns
    -------
    int or None
        The place in the query; None where no member is clearly odd.

    Examples
    --------
    >>> from deepsets.expand import BayesianSets
    >>> cats, trees = ["lion", "tiger", "puma", "lynx"], ["oak", "elm", "ash", "fir", "yew"]
    >>> expander = BayesianSets().fit([cats[:3], cats[1:], trees[:4], trees[1:], trees])
    >>> odd_member(expander, ["lion", "oak", "puma"]), odd_member(expander, ["lion", "tiger", "puma"])
    (1, None)

    """
    query = list(query)
    ids = expander.ids(query, "the query").tolist()
    place = dict(zip(query, ids, strict=True))
    outside = np.ones(len(expander.vocabulary_), dtype=bool)
    outside[ids] = False
    if len(set(ids)) < 3:
        return None

    context = expander._z(z, 1)

    def as_good(member: Any, others: list[Any], compare: np.ufunc) -> int:
        row = expander._fit_scores([np.unique([place[m] for m in others])], context)[0]
        return int(compare(row[outside], row[place[member]]).sum())

    fits = expander.fits(query, z) if fits is None else fits
    least = np.sort(fits[np.unique(ids, return_index=True)[1]])
    if np.isclose(least[0], least[1], rtol=1e-4, atol=1e-6):
        return None
    lowest, *rest = {place[query[i]]: query[i] for i in np.argsort(fits, kind="stable")}.values()
    odd = as_good(lowest, rest, np.greater_equal) >= max(_LEAST, expander.odd_shares[0] * outside.sum())
    together = odd and as_good(rest[0], rest[1:], np.greater) < expander.odd_shares[1] * outside.sum()
    return query.index(lowest) if together else None


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
    out_of = [np.array([], int)] * len(wanted) if exclude is None else [np.asarray(e, dtype=np.int64) for e in exclude]
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
        not_above, below = (np.searchsorted(left, row[truth], side=side) for side in ("right", "left"))
        found.append((2 * len(left) + 1 - not_above - below) / 2)
    return found


def recall_at(ranks: Sequence[np.ndarray], k: int) -> float:
    """Compute recall@k: the share of a query's truths among the first k, averaged over queries.

    >>> recall_at([np.array([1, 12]), np.array([3, 4])], k=10)
    0.75
    """
    _check(ranks)
    return float(np.mean([np.mean(r <= k) for r in ranks]))


def mean_reciprocal_rank(ranks: Sequence[np.ndarray]) -> float:
    """Compute the mean of 1 / rank over all truths of all queries, not only the first of each query.

    >>> mean_reciprocal_rank([np.array([1, 2]), np.array([4, 4])])
    0.5
    """
    _check(ranks)
    return float(np.mean(1 / np.concatenate(ranks)))


def median_rank(ranks: Sequence[np.ndarray]) -> float:
    """Compute the median rank over all truths of all queries.

    >>> median_rank([np.array([1, 2]), np.array([4, 9])])
    3.0
    """
    _check(ranks)
    return float(np.median(np.concatenate(ranks)))


def _check(ranks: Sequence[np.ndarray]) -> None:
    empty = [q for q, r in enumerate(ranks) if len(r) == 0]
    if not ranks or empty:
        raise ValueError(f"query {empty[0]} has no truths." if empty else "there are no queries.")


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
    coverage = {"coverage": len(seen) / len(words), "queries": len(queries)}
    return {f"recall@{k}": recall_at(found, k), "mrr": mean_reciprocal_rank(found), **coverage}
