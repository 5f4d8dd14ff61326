"""LDA-1k, LDA-3k, LDA-5k: topics of Wikipedia as sets of 50 words (Deep Sets, section 4.2 and appendix E)."""

from __future__ import annotations

import gzip
import json
from typing import Literal, NamedTuple

import numpy as np

from .folder import data_file

SOURCE = "https://github.com/manzilzaheer/DeepSets (SetExpansion/data/lda, gzipped)"
SIZES = ("1k", "3k", "5k")


class Topics(NamedTuple):
    """words: the vocabulary, an id is a place in it. train, val, test: (N, 50) ids, the most probable word first."""

    words: list[str]
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


def load(size: Literal["1k", "3k", "5k"]) -> Topics:
    """The topics of one size, in the authors' split of 80, 10 and 10 percent.

    >>> topics = load("1k")  # doctest: +SKIP
    >>> [topics.words[i] for i in topics.test[2, :5]]  # doctest: +SKIP
    ['cup', 'world', 'tournament', 'final', 'football']

    The arrays cannot be written to: whoever shuffles members, shuffles a copy.
    """
    if size not in SIZES:
        raise ValueError(f"the LDA topics come in the sizes {', '.join(SIZES)}; found {size!r}.")
    path = data_file("lda", f"lda_top_words_split_allwords_{size}.json.gz", SOURCE)
    content = json.loads(gzip.decompress(path.read_bytes()))
    names: dict[str, str] = content["params"]["ind2word"]
    words = [names[str(i)] for i in range(len(names))]
    parts = {part: np.array(content["data"][part]) for part in ("train", "val", "test")}
    for part, ids in parts.items():
        if ids.ndim != 2 or ids.min() < 0 or ids.max() >= len(words):
            raise ValueError(f"{path}: the part {part!r} is no table of ids below {len(words)}.")
        ids.flags.writeable = False
    return Topics(words, **parts)
