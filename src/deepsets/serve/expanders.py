"""Expanders behind the API: many queries in one matrix of scores."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..expand import UnknownElement, odd_member, top_k
from .models import Served, to_json
from .schema import Limits

_MATRIX_NUMBERS = 8_000_000  # numbers in one matrix of scores
_PART = 32


class ExpansionQuery(NamedTuple):
    """A query of known elements; without `k` the scores of all elements are wanted."""

    members: list[Any]
    k: int | None = None
    exclude: tuple[Any, ...] = ()
    z: list[float] | None = None


class ServedExpander(Served):
    """An expander that answers ``expand``, ``score`` and ``fits``."""

    kind = "expander"
    abilities: ClassVar[list[str]] = ["expand", "score", "fits"]

    def __init__(
        self, name: str, model: Any, examples: list[list[Any]] | None = None, about: str | None = None
    ) -> None:
        super().__init__(name, model, examples, about)
        self._position = {element: i for i, element in enumerate(model.vocabulary_)}
        self.complete = Completion(model.vocabulary_)

    @staticmethod
    def _trained(model: Any) -> str:
        return f"over {len(model.vocabulary_):,} elements"

    def max_batch(self, limits: Limits) -> int:
        """Number of queries whose scores fit in one matrix."""
        return max(1, min(limits.batch, _MATRIX_NUMBERS // len(self._position)))

    def known(self, elements: list[Any] | str) -> tuple[list[Any], list[dict[str, Any]]]:
        """Split elements into known ones, in the spelling of the vocabulary, and unknown ones with suggestions."""
        members, unknown = self.model.parse(elements)
        return members, [one._asdict() for one in unknown]

    def resolve(self, members: list[Any] | str, z: list[float] | None) -> tuple[list[Any], list[dict[str, Any]]]:
        """Known and unknown members of a query, at least one of them known."""
        known, unknown = self.known(members)
        if not known:
            raise ValueError(self._unknown_message([UnknownElement(**one) for one in unknown], "the query"))
        self.check_context(z)
        return known, unknown

    def resolve_each(self, members: list[Any], where: str) -> list[Any]:
        """Members in the spelling of the vocabulary, one for one; all must be known."""
        places = [self.model.find(member) for member in members]
        unknown = [member for member, i in zip(members, places, strict=True) if i is None]
        if unknown:
            raise ValueError(self._unknown_message(self.model.parse(unknown).unknown, where))
        return [self.model.vocabulary_[i] for i in places if i is not None]

    def _unknown_message(self, unknown: list[UnknownElement], where: str) -> str:
        listed = "; ".join(map(str, unknown[:5])) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")
        return f"{where} holds elements that are not in the vocabulary of {len(self._position)}: {listed}."

    def check_context(self, z: list[float] | None) -> None:
        """Refuse a context of the wrong size."""
        if (len(z) if z else 0) != self.context:
            found = f"{len(z)} numbers were" if z else "none was"
            raise ValueError(f"{self.name} needs z of {self.context} numbers for each set; {found} given.")

    def check_candidates_left(self, query: ExpansionQuery) -> None:
        """Refuse a query that leaves no candidate."""
        if len(self._taken(query)) == len(self._position):
            raise ValueError(f"no candidate is left: the query and `exclude` hold all {len(self._position)} elements.")

    def _taken(self, query: ExpansionQuery) -> np.ndarray:
        return np.array(sorted({self._position[element] for element in (*query.members, *query.exclude)}))

    def scores(self, queries: list[ExpansionQuery]) -> list[Any]:
        """Candidates, best first, or all scores; one call of the expander for all queries."""
        z = [query.z for query in queries] if self.context else None
        wanted = [query.k + len(self._taken(query)) for query in queries if query.k is not None]
        best = max(wanted) if len(wanted) == len(queries) else None
        rows = self.model.scores([query.members for query in queries], z, best)
        return [to_json(row) if q.k is None else self._best(row, q, q.k) for q, row in zip(queries, rows, strict=True)]

    def _best(self, row: np.ndarray, query: ExpansionQuery, k: int) -> list[dict[str, Any]]:
        """Like `expand` of the model; the exact choice is made among the few elements that can be in it."""
        row, taken = self.model.filter_scores(self.model.ids(query.members), row), self._taken(query)
        near = _largest(row, k + len(taken))
        chosen = near[top_k(row[near], k, ~np.isin(near, taken))]
        words = self.model.vocabulary_
        return [{"element": words[i], "score": s} for i, s in zip(chosen.tolist(), to_json(row[chosen]), strict=True)]

    def score(self, questions: list[Any]) -> list[Any]:
        """Scores of candidates, for (members, candidates, z)."""
        return [to_json(self.model.score(members, some, z or None)) for members, some, z in questions]

    def reasons(self, questions: list[Any]) -> list[Any]:
        """Which members each candidate goes with, for (members, candidates, z)."""
        found = [self.model.explain_each(members, some, z or None) for members, some, z in questions]
        return [[r._asdict() | {"members": [m._asdict() for m in r.members]} for r in each] for each in found]

    def fits(self, questions: list[Any]) -> list[Any]:
        """How well each member goes with the others, and the position of the odd one, if any, for (members, z)."""
        out = []
        for members, z in questions:
            found = self.model.fits(members, z or None)
            out.append({"fits": to_json(found), "odd": odd_member(self.model, members, z or None, fits=found)})
        return out

    def _example_sets(self) -> list[list[Any]]:
        """Three elements, each with the two that go best with it."""
        words = self.model.vocabulary_
        firsts = [words[i * len(words) // 3] for i in range(3)] if len(words) > 3 else []
        found = self.scores([ExpansionQuery([first], 2) for first in firsts]) if firsts else []
        return [[first, *(c["element"] for c in best)] for first, best in zip(firsts, found, strict=True)]


def _largest(row: np.ndarray, count: int) -> np.ndarray:
    """Positions, in order, of the `count` largest entries and of few others; cheaper than a partition of the row.

    Of the maxima of many parts of the row, the one of rank `count` is not above the entry of that rank.
    """
    parts = len(row) // _PART
    if parts <= count:
        return np.arange(len(row))
    maxima = row[: parts * _PART].reshape(_PART, parts).max(0)
    return np.flatnonzero(row >= np.partition(maxima, parts - count)[parts - count])


class Completion:
    """Completes a prefix: the element itself, elements that begin with it, then those that contain it.

    Vocabularies mostly list common words first, and each group keeps this order. All words stand in one string, so
    that a search is `str.find`: 0.1 ms in 61,000 words.

    Examples
    --------
    >>> Completion(["billion", "lion", "tiger", "li"])("li", 3)
    ['li', 'lion', 'billion']
    """

    def __init__(self, vocabulary: list[Any]) -> None:
        words = [_normalize(str(element)) for element in vocabulary]
        self._elements = list(vocabulary)
        self._text = "\n" + "".join(word + "\n" for word in words)
        self._ends = list(accumulate(len(word) + 1 for word in words))

    def __call__(self, prefix: str, limit: int) -> list[Any]:
        """At most `limit` elements."""
        typed = _normalize(prefix)
        patterns = ["\n" + typed + "\n", "\n" + typed, typed] if typed else ["\n"]
        found: dict[int, None] = {}
        for text in patterns:
            if len(found) < limit:
                found |= dict.fromkeys(self._find(text, limit + len(found)))
        return [self._elements[i] for i in list(found)[:limit]]

    def _find(self, pattern: str, limit: int) -> list[int]:
        """Numbers of the first words with the pattern, in order, each once."""
        found: list[int] = []
        at = self._text.find(pattern)
        while at >= 0 and len(found) < limit:
            i = bisect_right(self._ends, at)
            if i == len(self._ends):
                break
            found.append(i)
            at = self._text.find(pattern, self._ends[i])
        return found


def _normalize(word: str) -> str:
    return word.casefold().replace("\n", " ").strip()
