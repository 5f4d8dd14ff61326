"""Completion of what is being typed, over all elements of a vocabulary."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Any


class Completion:
    """Elements that begin with what was typed, then those that hold it; short ones first, ties as in the vocabulary.

    >>> Completion(["tiger", "lion", "li", "billion"])("li", 3)
    ['li', 'lion', 'billion']

    All words stand in one string, in the order of the answer, so that a search is `str.find`: 0.1 ms in 61,000 words.
    """

    def __init__(self, vocabulary: list[Any]) -> None:
        words = [_plain(str(element)) for element in vocabulary]
        order = sorted(range(len(words)), key=lambda i: len(words[i]))
        self._elements = [vocabulary[i] for i in order]
        self._text = "\n" + "".join(words[i] + "\n" for i in order)
        self._ends = list(accumulate(len(words[i]) + 1 for i in order))

    def __call__(self, prefix: str, limit: int) -> list[Any]:
        typed = _plain(prefix)
        found = self._find("\n" + typed, limit)
        if typed and len(found) < limit:
            found += [i for i in self._find(typed, 2 * limit) if i not in found]
        return [self._elements[i] for i in found[:limit]]

    def near(self, word: str) -> list[Any]:
        """Up to three elements that begin like a word that is not known: the longest beginning that any has."""
        typed, low, high = _plain(word)[:40], 1, len(_plain(word)[:40])
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._find("\n" + typed[:middle], 1) else (low, middle - 1)
        return self(typed[:low], 3) if low > 1 else []

    def _find(self, wanted: str, limit: int) -> list[int]:
        """Numbers of the first words with it, in order, each once."""
        found: list[int] = []
        at = self._text.find(wanted)
        while at >= 0 and len(found) < limit:
            i = bisect_right(self._ends, at)
            if i == len(self._ends):
                break
            found.append(i)
            at = self._text.find(wanted, self._ends[i])
        return found


def _plain(word: str) -> str:
    return word.casefold().replace("\n", " ").strip()
