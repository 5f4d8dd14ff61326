"""The member of a set that does not go with the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .base import Expander

# Of the elements outside of the set, those that would do as well. With a random word beside four that go together, of
# the concepts that come with the library, 54 to 57 of 60 are named, none wrongly; of the four alone, none is.
_SHARE, _LEAST = 0.1, 3


def odd_member(
    expander: Expander, query: Iterable[Any], z: Any = None, *, fits: np.ndarray | None = None
) -> int | None:
    """The place of the one member that does not go with the others; None where that is not clear.

    >>> from deepsets.expand import BayesianSets
    >>> cats, trees = ["lion", "tiger", "puma", "lynx"], ["oak", "elm", "ash", "fir", "yew"]
    >>> expander = BayesianSets().fit([cats[:3], cats[1:], trees[:4], trees[1:], trees])
    >>> odd_member(expander, ["lion", "oak", "puma"]), odd_member(expander, ["lion", "tiger", "puma"])
    (1, None)

    Of three or more members the one that fits least is odd if many elements outside of the set would go with the others
    as well as it does, a tenth of them and at least three, and if the others hold together: if less than a third would
    go better with the rest of them than the next one does. Of two, nobody knows which. It costs the scores of the whole
    vocabulary, twice at most. fits: those of the query, `expander.fits(query, z)`, where they are known.
    """
    query = list(query)
    outside = np.ones(len(expander.vocabulary_), dtype=bool)
    outside[expander._lookup(query, "the query")] = False
    if len(set(query)) < 3:
        return None

    def number(member: Any, others: list[Any], compare: np.ufunc) -> int:
        row = np.asarray(expander.score(others, None, z))
        return int(compare(row[outside], row[expander._ids[member]]).sum())

    fits = expander.fits(query, z) if fits is None else fits
    lowest, *rest = dict.fromkeys(query[place] for place in np.argsort(fits, kind="stable"))
    stranger = number(lowest, rest, np.greater_equal) >= max(_LEAST, _SHARE * outside.sum())
    together = stranger and number(rest[0], rest[1:], np.greater) < outside.sum() / 3
    return query.index(lowest) if together else None
