"""Tags from captions, as COCO-Tag is made (Deep Sets, appendix F): lemmas without stop words and numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

NUMBERS = frozenset(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million first second "
    "third once twice".split()
)


def words(captions: Iterable[str], lemma: Callable[[str], str] = str) -> set[str]:
    """The tags that the captions of one image name.

    >>> sorted(words(["Two dog run on the 2nd grassy hill .", "dog outside"]))
    ['dog', 'grassy', 'hill', 'outside', 'run']
    """
    found = (lemma(word) for caption in captions for word in re.findall(r"[^\W_](?:[\w-]*[^\W_])?", caption.lower()))
    return {w for w in found if len(w) > 1 and w.isascii() and w not in ENGLISH_STOP_WORDS | NUMBERS and not _digit(w)}


def _digit(word: str) -> bool:
    return any(letter.isdigit() for letter in word)


def vocabulary(images: Iterable[set[str]], minimum: int) -> list[str]:
    """Words of at least `minimum` images, the most frequent first; below that stand mostly slips of the pen.

    >>> vocabulary([{"dog", "run"}, {"dog", "hill"}, {"dog", "run"}], minimum=2)
    ['dog', 'run']
    """
    counts = Counter(word for image in images for word in image)
    return sorted((w for w, n in counts.items() if n >= minimum), key=lambda w: (-counts[w], w))


def tag_matrix(images: Sequence[set[str]], names: Sequence[str]) -> csr_array:
    """(n, t) of 0 and 1; words that are no tags are left out."""
    place = {name: i for i, name in enumerate(names)}
    rows = [sorted(place[word] for word in image if word in place) for image in images]
    ends = np.cumsum([0, *map(len, rows)])
    columns = np.concatenate([np.array(row, dtype=np.int64) for row in rows]) if rows else np.zeros(0, np.int64)
    return csr_array((np.ones(ends[-1], np.uint8), columns, ends), shape=(len(rows), len(names)))


def stemmer(captions: Iterable[str]) -> Callable[[str], str]:
    """A plain lemmatiser: an inflected form becomes its stem where the stem, too, is a word of these captions.

    >>> lemma = stemmer(["a dog runs", "two dogs run and jump", "jumping in a dress"])
    >>> [lemma(word) for word in ["dogs", "runs", "jumping", "dress"]]
    ['dog', 'run', 'jump', 'dress']
    """
    known: Mapping[str, int] = Counter(word for caption in captions for word in re.findall(r"[a-z]+", caption.lower()))

    def lemma(word: str) -> str:
        for ending, instead in _ENDINGS:
            stem = word[: -len(ending)] + instead
            if word.endswith(ending) and len(stem) > 2 and stem in known:
                return stem
            twice = stem[:-1] if len(stem) > 3 and stem[-1] == stem[-2] else ""  # running, run
            if ending in ("ing", "ed") and word.endswith(ending) and twice in known:
                return twice
        return word

    return lemma


_ENDINGS = (("ies", "y"), ("es", ""), ("s", ""), ("ied", "y"), ("ing", ""), ("ing", "e"), ("ed", ""), ("ed", "e"))
