"""The English words that come with the library: GloVe vectors in 4 bits per number, and concept sets of WordNet."""

from __future__ import annotations

import functools
import gzip
import io
import re
from importlib import resources
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..vocabulary import fold

# Words that are no answer, whatever the query.
_FUNCTION_WORDS = (
    "a about above across after again against all almost alone along already also although always am among an and "
    "another any anybody anyone anything anyway are aren around as at away back be became because become been before "
    "behind being below beside between beyond both but by can cannot could couldn did didn do does doesn doing don "
    "done down during each either else enough especially etc even ever every everybody everyone everything except few "
    "for from further get gets getting give given go goes going gone got had hadn has hasn have haven having he her "
    "here hers herself him himself his how however i if in indeed instead into is isn it its itself just kind know "
    "last later least less let like likely ll many may maybe me mean might mine more moreover most mostly much must my "
    "myself nearly need neither never next no nobody none nor not nothing now of off often on once one only onto or "
    "other others otherwise our ours out over own particularly per perhaps quite rather re really s said same say says "
    "see seem seemed seems several she should shouldn simply since so some somebody someone something sometimes soon "
    "still such t than that the their theirs them themselves then there therefore these they thing things this those "
    "though through thus to together too toward towards under until up upon us use used using usually ve very was wasn "
    "way we well went were weren what whatever when where whether which while who whoever whole whom whose why will "
    "with within without won would wouldn yet you your yours yourself yourselves"
).split()


class Concepts(NamedTuple):
    """Concept sets of WordNet.

    Attributes
    ----------
    words : list of str
        All members, the most frequent in English first.
    names : list of str
        Names of the sets, several of which may share one.
    sets : list of list of str
        Members of each set.

    """

    words: list[str]
    names: list[str]
    sets: list[list[str]]


class WordData(NamedTuple):
    """What the library knows about English words.

    Attributes
    ----------
    words : list of str
        Words in order of frequency, then phrases.
    vectors : ndarray of shape (V, 100)
        Vectors of length 1.
    members : csr_array of shape (T, V)
        1 where word v is in concept t.
    names : list of str
        Names of the concepts.
    stems : ndarray of int, shape (V,)
        The same number for inflections of one word.
    function : ndarray of bool, shape (V,)
        Words without a meaning of their own, such as "the".

    """

    words: list[str]
    vectors: np.ndarray
    members: sp.csr_array
    names: list[str]
    stems: np.ndarray
    function: np.ndarray


@functools.cache
def concept_sets() -> Concepts:
    """Return the sets of words that WordNet has under one noun, made by `scripts/wordnet_concepts.py`.

    Returns
    -------
    Concepts
        WordNet's notice is beside the file, in `WORDNET-LICENSE`.

    Examples
    --------
    >>> found = concept_sets()
    >>> found.sets[found.names.index("big cat")][:4]
    ['tiger', 'lion', 'jaguar', 'panther']

    """
    first, *lines = gzip.decompress(_read("concepts.txt.gz")).decode().splitlines()
    rows = [line.split("\t") for line in lines]
    return Concepts(first.split("\t"), [row[0] for row in rows], [row[1:] for row in rows])


@functools.cache
def word_data() -> WordData:
    """Return words, vectors and concepts; reading takes half a second.

    Returns
    -------
    WordData
        The vectors are derived from GloVe by `scripts/word_vectors.py`; see `NOTICE`.

    """
    concepts = concept_sets()
    plain, phrases = (p.split("\n") for p in gzip.decompress(_read("words.txt.gz")).decode().rstrip().split("\n\n"))
    spelled = {fold(word): word for word in reversed(concepts.words)}  # with a capital where that is usual
    words = [spelled.get(word, word) for word in plain]
    place = {word: i for i, word in enumerate(plain)}
    known = {fold(word) for word in plain}
    extra = {fold(p): spelled.get(fold(p), p) for p in [*concepts.words, *phrases] if fold(p) not in known}
    parts = [[place[part] for part in re.split("[ -]", p.lower()) if part in place] for p in extra.values()]
    words += [p for p, found in zip(extra.values(), parts, strict=True) if found]
    vectors = _decode()
    vectors = np.concatenate([vectors, _compose([found for found in parts if found], vectors)])
    ids: dict[str, int] = {}
    for i, word in enumerate(words):
        ids.setdefault(fold(word), i)
    rows = [[ids[fold(word)] for word in members if fold(word) in ids] for members in concepts.sets]
    offsets = np.cumsum([0, *map(len, rows)])
    flat = np.array([i for row in rows for i in row])
    members = sp.csr_array((np.ones(len(flat), np.float32), flat, offsets), shape=(len(rows), len(words)))
    function = np.zeros(len(words), dtype=bool)
    function[[place[word] for word in _FUNCTION_WORDS if word in place]] = True
    return WordData(words, vectors, members, concepts.names, _stems(words), function)


def _read(name: str) -> bytes:
    return resources.files(__package__).joinpath(name).read_bytes()


def _decode() -> np.ndarray:
    """(n, 100) vectors of length 1."""
    with np.load(io.BytesIO(_read("vectors.npz"))) as file:
        codes, levels, mean, scale = (file[name] for name in ("codes", "levels", "mean", "scale"))
    table = np.empty((len(codes), 2 * codes.shape[1]), np.float32)
    table[:, 0::2], table[:, 1::2] = levels[codes >> 4], levels[codes & 15]
    table *= scale
    table += mean
    return table / np.linalg.norm(table, axis=1, keepdims=True)


def _compose(parts: list[list[int]], vectors: np.ndarray) -> np.ndarray:
    """Vectors of phrases: of their words, rare ones with more weight."""
    sizes = np.array([len(ids) for ids in parts])
    flat = np.concatenate([np.array(ids) for ids in parts])
    weighted = vectors[flat] * np.log1p(flat / 100 + 0.1)[:, None].astype(np.float32)
    table = np.add.reduceat(weighted, np.cumsum([0, *sizes[:-1]]), axis=0)
    return table / np.linalg.norm(table, axis=1, keepdims=True).clip(1e-9)


def _stems(words: list[str]) -> np.ndarray:
    """Number the words, plurals and possessives like the word they are derived from, if that is known."""
    ids: dict[str, int] = {}
    for i, word in enumerate(words):
        ids.setdefault(word.casefold(), i)
    return np.array([next((ids[s] for s in _bases(word.casefold()) if s in ids), i) for i, word in enumerate(words)])


def _bases(word: str) -> list[str]:
    if word.endswith("'s"):
        return [word[:-2]]
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return []
    if word.endswith("ies"):
        return [word[:-3] + "y", word[:-1]]
    if word.endswith("ves"):
        return [word[:-1], word[:-3] + "f", word[:-3] + "fe"]
    if word.endswith(("ses", "xes", "zes", "ches", "shes", "oes")):
        return [word[:-1], word[:-2]]
    return [word[:-1]]
