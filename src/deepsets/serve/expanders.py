"""Expanders, served: many queries in one matrix of scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..expand import odd_member, top_k
from .completion import Completion
from .limits import Limits
from .models import Served, plain

_NUMBERS = 8_000_000  # of one matrix of scores
_PART = 32


class Query(NamedTuple):
    """k: how many candidates are wanted; None: the scores of all elements."""

    members: list[Any]
    k: int | None = None
    exclude: tuple[Any, ...] = ()
    z: list[float] | None = None


class ServedExpander(Served):
    """Answers `expand`, `score` and `fits`.

    >>> from deepsets.expand import BayesianSets
    >>> model = BayesianSets().fit([["lion", "tiger", "puma"], ["tiger", "puma", "lion"], ["oak", "elm", "fir"]])
    >>> [found["element"] for found in ServedExpander("beasts", model).scores([Query(["lion"], k=2)])[0]]
    ['tiger', 'puma']
    """

    kind = "expander"

    def __init__(
        self, name: str, model: Any, examples: list[list[Any]] | None = None, about: str | None = None
    ) -> None:
        count = len(model.vocabulary_)
        super().__init__(name, model, examples, about or f"{type(model).__name__} over {count:,} elements")
        self.abilities = ["expand", "score", "fits"]
        self._place = {element: i for i, element in enumerate(model.vocabulary_)}
        self.complete = Completion(model.vocabulary_)

    def task(self) -> str:
        return "expansion"

    def most(self, limits: Limits) -> int:
        return max(1, min(limits.batch, _NUMBERS // len(self._place)))

    def check(self, members: list[Any], z: list[float] | None, where: str = "the query") -> None:
        """What the expander would refuse; in microseconds, so that a wrong question never reaches the queue."""
        unknown = list(dict.fromkeys(e for e in members if e not in self._place))
        if unknown:
            listed = "; ".join(self._unknown(e) for e in unknown[:5])
            more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
            raise ValueError(f"{where} holds what is not in the vocabulary of {len(self._place)}: {listed}{more}.")
        if (len(z) if z else 0) != self.context:
            found = f"{len(z)} numbers were" if z else "none was"
            raise ValueError(f"{self.name} wants z of {self.context} numbers for each set; {found} given.")

    def _unknown(self, element: Any) -> str:
        near = ", ".join(map(str, self.complete.near(str(element))))
        return repr(element)[:60] + (f" (near it: {near})" if near else "")

    def check_left(self, query: Query) -> None:
        """Some element must be left to be a candidate."""
        taken = {self._place.get(e, -1) for e in (*query.members, *query.exclude)} - {-1}
        if len(taken) == len(self._place):
            raise ValueError(f"no candidate is left: the query and `exclude` hold all {len(taken)} elements.")

    def scores(self, queries: list[Query]) -> list[Any]:
        """Candidates, best first, or all scores; for all queries by one call of the expander."""
        z = [query.z for query in queries] if self.context else None
        rows = self.model.scores([query.members for query in queries], z)
        return [plain(row) if q.k is None else self._best(row, q) for q, row in zip(queries, rows, strict=True)]

    def _best(self, row: np.ndarray, query: Query) -> list[dict[str, Any]]:
        """Like `BaseExpander.expand`; the exact choice is made among the few that can be in it."""
        assert query.k is not None
        row = self.model.filter_scores(self.model.ids(query.members), row)
        taken = np.array(sorted({self._place[e] for e in (*query.members, *query.exclude) if e in self._place}))
        near = _at_least(row, query.k + len(taken))
        left = np.ones(len(near), dtype=bool)
        found = np.searchsorted(near, taken)
        found = found[near.take(found, mode="clip") == taken]
        left[found] = False
        chosen = near[top_k(row[near], query.k, left)]
        words = self.model.vocabulary_
        return [{"element": words[i], "score": s} for i, s in zip(chosen.tolist(), plain(row[chosen]), strict=True)]

    def score(self, members: list[Any], candidates: list[Any], z: list[float] | None) -> list[Any]:
        return plain(self.model.score(members, candidates, z or None))

    def fits(self, members: list[Any], z: list[float] | None) -> dict[str, Any]:
        """How well each member goes with the others, and the place of the odd one, if one stands out."""
        found = self.model.fits(members, z or None)
        return {"fits": plain(found), "odd": odd_member(self.model, members, z or None, fits=found)}

    def _some_examples(self) -> list[list[Any]]:
        """Three elements, each with the two that go best with it."""
        words = self.model.vocabulary_
        firsts = [words[i * len(words) // 3] for i in range(3)] if len(words) > 3 else []
        found = self.scores([Query([first], 2) for first in firsts]) if firsts else []
        return [[first, *(c["element"] for c in best)] for first, best in zip(firsts, found, strict=True)]


def _at_least(row: np.ndarray, count: int) -> np.ndarray:
    """Places, in order, of the `count` largest entries and of few others; cheaper than a partition of the whole row.

    Of the largest entries of many parts of the row, the one of rank `count` is not above the entry of that rank.
    """
    parts = len(row) // _PART
    if parts <= count:
        return np.arange(len(row))
    heads = row[: parts * _PART].reshape(_PART, parts).max(0)
    return np.flatnonzero(row >= np.partition(heads, parts - count)[parts - count])
