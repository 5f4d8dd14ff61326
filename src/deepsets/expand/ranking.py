"""The best of many scores, and the member that does not belong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from .base import BaseExpander

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
    if k >= len(found):
        return places[np.argsort(-found, kind="stable")]
    least = np.partition(found, len(found) - k)[len(found) - k]
    above = np.flatnonzero(found > least)
    ties = np.flatnonzero(found == least)[: k - len(above)]
    chosen = np.concatenate([above, ties])
    places, found = places[chosen], found[chosen]
    return places[np.lexsort((places, -found))]


def relative(scores: np.ndarray, value: float) -> float:
    """Place of a score between the median of all scores (0) and the best (1).

    Parameters
    ----------
    scores : ndarray
        Scores to compare with; -inf entries are ignored.
    value : float
        The score.

    Returns
    -------
    float
        Between 0 and 1.

    """
    others = scores[np.isfinite(scores)]
    if not len(others) or not np.isfinite(value):
        return 0.0
    usual, best = float(np.median(others)), max(float(others.max()), value)
    return max((value - usual) / (best - usual), 0.0) if best > usual else 0.0


def less_like(scores: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """Subtract the scores for negative examples, where these are above their mean.

    Parameters
    ----------
    scores, negative : ndarray of shape (V,)
        Scores of all elements for the query, and for the negative examples.

    Returns
    -------
    ndarray of shape (V,)
        In standard deviations.

    """
    return _standard(scores) - np.maximum(_standard(negative), 0)


def _standard(scores: np.ndarray) -> np.ndarray:
    finite = scores[np.isfinite(scores)]
    return (scores - finite.mean()) / (finite.std() or 1.0) if len(finite) else scores


def odd_member(
    expander: BaseExpander, query: Iterable[Any], z: Any = None, *, fits: np.ndarray | None = None
) -> int | None:
    """Find the one member that does not belong to the others.

    The member that fits least is odd if at least a tenth of the elements outside of the set (and at least three) would
    go with the others as well as it does, and if the others hold together: if less than a third of the elements would
    go better with the rest of them than the next member does. Of two members, none is odd.

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

    def as_good(member: Any, others: list[Any], compare: np.ufunc) -> int:
        row = np.asarray(expander.score(others, None, z))
        return int(compare(row[outside], row[place[member]]).sum())

    fits = expander.fits(query, z) if fits is None else fits
    lowest, *rest = {place[query[i]]: query[i] for i in np.argsort(fits, kind="stable")}.values()
    odd = as_good(lowest, rest, np.greater_equal) >= max(_LEAST, expander.odd_shares[0] * outside.sum())
    together = odd and as_good(rest[0], rest[1:], np.greater) < expander.odd_shares[1] * outside.sum()
    return query.index(lowest) if together else None
