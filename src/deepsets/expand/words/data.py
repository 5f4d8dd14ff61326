"""The English words that come with the library: GloVe vectors in 4 bits per number, and concept sets of WordNet."""

from __future__ import annotations

import functools
import gzip
import io
from importlib import resources
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp


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
    """Return words, vectors and concepts; read once per process.

    Returns
    -------
    WordData
        The vectors are derived from GloVe by `scripts/word_vectors.py`; see `NOTICE`.

    """
    words = gzip.decompress(_read("words.txt.gz")).decode().rstrip("\n").split("\n")
    with np.load(io.BytesIO(_read("index.npz"))) as file:
        index = {name: file[name] for name in file.files}
    vectors = _decode()
    vectors = np.concatenate([vectors, _compose(index["parts"], index["part_offsets"], vectors)])
    ones = np.ones(len(index["members"]), np.float32)
    offsets = index["member_offsets"]
    members = sp.csr_array((ones, index["members"], offsets), shape=(len(offsets) - 1, len(words)))
    function = np.zeros(len(words), dtype=bool)
    function[index["function"]] = True
    return WordData(words, vectors, members, concept_sets().names, index["stems"], function)


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


def _compose(parts: np.ndarray, offsets: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Vectors of phrases: of their words, rare ones with more weight."""
    weighted = vectors[parts] * np.log1p(parts / 100 + 0.1)[:, None].astype(np.float32)
    table = np.add.reduceat(weighted, offsets[:-1], axis=0)
    return table / np.linalg.norm(table, axis=1, keepdims=True).clip(1e-9)
