"""Set expansion of English words, with data that comes with the library: word vectors and concepts of WordNet."""

from __future__ import annotations

import functools
import gzip
import io
import json
from collections import Counter
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..base import BaseExpander
from ..bayesian import BayesianSets
from ..learned import SetExpander
from ..vectors import NearestVectors, unit
from ..vocabulary import Vocabulary

__all__ = ["WORD_METHODS", "Concepts", "WordData", "WordExpander", "concept_sets", "word_data", "word_expander"]

WORD_METHODS = ("blend", "bayesian-sets", "nearest-vectors", "deep-sets")
NEIGHBOURS, RANKED = 20, 5000  # words near the query, and words near a member that have a rank
SHARPNESS = 3.0  # of the weights of words near the query: those near all its members count most
PRESELECTED = 1000  # words that the learned weights rank; the others follow in the order of `quick_scores`
FEATURES = (
    "cosine",
    "cosine to the neighbours, where no concept holds the members",
    "cosine to the query and its neighbours",
    "lowest cosines",
    "rank among the neighbours of each member",
    "concepts of the members",
    "largest share of members in a concept",
    "concepts near the query",
    "in concepts as the members",
    "in concepts unlike the members, where none holds them",
    "log frequency rank",
    "rarer than the query",
    "is a phrase, in no concept of all members",
    "is a phrase, unlike the members, in no concept of all",
    "strongest narrow concept of the members",
)
WIDE_WEIGHT = 0.1  # of groups of a wide noun, where a narrow concept holds all members
NARROW = 3  # concepts of one name at most: a noun that was taken apart into more groups is a wide one


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
    """Return words, vectors (derived from GloVe by `scripts/word_vectors.py`, see `NOTICE`) and concepts; read once."""
    words = gzip.decompress(_read("words.txt.gz")).decode().rstrip("\n").split("\n")
    index, vectors = _arrays("index.npz"), _decode(**_arrays("vectors.npz"))
    vectors = np.concatenate([vectors, _compose(index["parts"], index["part_offsets"], vectors)])
    ones = np.ones(len(index["members"]), np.float32)
    offsets = index["member_offsets"]
    members = sp.csr_array((ones, index["members"], offsets), shape=(len(offsets) - 1, len(words)))
    function = np.zeros(len(words), dtype=bool)
    function[index["function"]] = True
    return WordData(words, vectors, members, concept_sets().names, index["stems"], function)


def _read(name: str) -> bytes:
    return resources.files(__package__).joinpath(name).read_bytes()


def _arrays(name: str) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(_read(name))) as file:
        return {name: file[name] for name in file.files}


def _decode(codes: np.ndarray, levels: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """(n, 100) vectors of length 1 from codes of 4 bits."""
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


class WordExpander(BaseExpander):
    """Expand sets of English words and phrases; nothing to fit or download.

    The score of a word is a weighted sum of features of the pair (query, word): cosines of word vectors to the whole
    query and to its least similar members, concepts of WordNet that hold members of the query (the more members, the
    more weight, so that the sense all members share decides), concepts near the query, and frequency. The weights were
    learned by `scripts/word_blend.py` from lists of things that belong together. Function words, inflections of the
    query and names of its kind ("cheese" for brie and gouda) are no answers.

    Parameters
    ----------
    method : {"blend", "bayesian-sets", "nearest-vectors", "deep-sets"}, default="blend"
        "blend" is described above. The others use concepts alone, vectors alone, or a Deep Sets network that was
        trained on the concepts with the vectors as features.

    Examples
    --------
    >>> expander = WordExpander()
    >>> sorted(found.element for found in expander.expand("monday, tuesday", k=5))
    ['Friday', 'Saturday', 'Sunday', 'Thursday', 'Wednesday']
    >>> expander.explain(["lion", "tiger"], "leopard").sets[0]
    'big cat'

    """

    odd_shares = (0.01, 0.003)  # most words have nothing to do with a query

    def __init__(self, method: str = "blend") -> None:
        if method not in WORD_METHODS:
            raise ValueError(f"method must be one of {', '.join(WORD_METHODS)}; found {method!r}.")
        self.method = method
        self.data = word_data()
        self.vocabulary_ = self.data.words
        self.features_, self.n_features_in_, self.n_context_ = None, 0, 0
        self._vocabulary = Vocabulary(self.vocabulary_)
        self._scorer: Any = {
            "blend": _Blend,
            "bayesian-sets": _bayesian_sets,
            "nearest-vectors": _nearest_vectors,
            "deep-sets": _deep_sets,
        }[method](self.data)

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        return self._scorer._scores(queries, z)

    def _member_fits(self, others: list[Any], members: Any, z: np.ndarray | None) -> np.ndarray:
        if isinstance(self._scorer, BaseExpander):
            return self._scorer._member_fits(others, members, z)
        return super()._member_fits(others, members, z)

    def filter_scores(self, members: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Set words that are no answers to -inf, and of inflections of one word all but the best, (V,) -> (V,)."""
        stems = self.data.stems
        best = np.full(len(stems), -np.inf, scores.dtype)
        np.maximum.at(best, stems, scores)
        asked = np.zeros(len(stems), dtype=bool)
        asked[stems[members]] = True
        asked[self._names_of_concepts(members)] = True
        return np.where(self.data.function | asked[stems] | (scores < best[stems]), -np.inf, scores)

    def _names_of_concepts(self, members: np.ndarray) -> list[int]:
        """Words that name what two members are, such as "cheese" for cheddar and brie, or one and are no such thing."""
        members = np.unique(self.data.stems[members])
        held = np.asarray(self.data.members[:, members].sum(1)).ravel()
        shared = np.flatnonzero(held >= 2)
        inside = set(self.data.members[shared if len(members) > 1 else np.flatnonzero(held)].indices.tolist())
        found = {self._vocabulary.find(self.data.names[t]) for t in np.flatnonzero(held)} - inside
        found |= {self._vocabulary.find(self.data.names[t]) for t in shared}
        return [int(self.data.stems[i]) for i in found - {None}]

    def _common_sets(self, members: np.ndarray, element: int) -> list[str]:
        of = np.flatnonzero(self.data.members[:, [self.data.stems[element]]].toarray()[:, 0])
        held = self.data.members[of][:, np.unique(self.data.stems[members])].sum(1)
        order = np.argsort(-held, kind="stable")
        return list(dict.fromkeys(self.data.names[of[t]] for t in order if held[t]))[:3]


def _nearest_vectors(data: WordData) -> BaseExpander:
    return NearestVectors((data.words, data.vectors), center=False, components=0).fit()


def _bayesian_sets(data: WordData) -> BaseExpander:
    # The prior counts for a tenth of the words in concepts: with a weaker one, a concept that holds one member of the
    # query counts nearly as much as one that holds them all.
    strength = len(np.unique(data.members.indices)) / 10
    return BayesianSets("beta", strength).fit(items=(data.words, data.members.T.tocsr()))


def new_deep_sets(epochs: int = 4) -> SetExpander:
    """Return the unfitted Deep Sets expander, trained by `scripts/word_deep_sets.py`."""
    sizes: dict[str, Any] = {"embedding": 0, "phi": (128,), "rho": (256,), "query": (2, 5)}
    return SetExpander(loss="softmax", positives=5, negatives=512, epochs=epochs, **sizes)


def _deep_sets(data: WordData) -> BaseExpander:
    import safetensors.torch

    weights = safetensors.torch.load(_read("deep_sets.safetensors"))
    expander = new_deep_sets()
    expander.features_ = data.vectors
    tensors = {f"network_.{name}": tensor.float() for name, tensor in weights.items()}
    facts = {"vocabulary_": data.words, "n_features_in_": data.vectors.shape[1], "n_context_": 0, "n_embedding_": 0}
    return expander.set_state(tensors, facts)


class _Blend:
    """Scores by learned weights of features for preselected words; the others follow."""

    def __init__(self, data: WordData) -> None:
        weights = json.loads(_read("weights.json"))
        self.weights = np.array([weights[name] for name in FEATURES], np.float32)
        self.evidence = WordEvidence(data)

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        return np.stack([self._score(self.evidence(query)) for query in queries])

    def _score(self, features: np.ndarray) -> np.ndarray:
        quick = quick_scores(features)
        chosen = np.argpartition(-quick, PRESELECTED)[:PRESELECTED]
        scores = features[chosen] @ self.weights
        out = quick - quick[chosen].min() + scores.min()
        out[chosen] = scores
        return out


def quick_scores(features: np.ndarray) -> np.ndarray:
    """Score words for the preselection, by features as `WordEvidence` computes them, (V, F) -> (V,)."""
    return 8 * features[:, 0] + 0.3 * (features[:, 5] + features[:, 7])


class WordEvidence:
    """Compute the features of all words for a query."""

    def __init__(self, data: WordData) -> None:
        self.data = data
        count, of = len(data.words), sp.csr_array(data.members.T)
        stems = sp.csr_array((np.ones(count, np.float32), (data.stems, np.arange(count))), shape=(count, count))
        self.of = sp.csr_array(stems @ of)[data.stems]  # (V, T) a word is in the concepts of its inflections
        self.of.data[:] = 1
        self.members = sp.csr_array(self.of.T)
        named = Counter(data.names)
        self.narrow = np.array([named[name] <= NARROW for name in data.names])
        sizes = np.diff(data.members.indptr)
        self.set_weight = (1 / np.sqrt(np.maximum(sizes, 1))).astype(np.float32)
        self.centres = unit(np.asarray(data.members @ data.vectors)).astype(np.float32)
        self.rank = np.log(np.arange(len(data.words)) + 30).astype(np.float32)
        self.in_concept = (np.diff(self.of.indptr) > 0).astype(np.float32)
        self.phrase = np.array([" " in word for word in data.words], dtype=np.float32)

    def __call__(self, query: np.ndarray, without: np.ndarray | None = None) -> np.ndarray:
        """(V, F), for ascending ids; `without`: concepts to leave out."""
        table, n = self.data.vectors, len(query)
        direction = unit(table[query].sum(0))
        products = table @ np.column_stack([direction, table[query].T])  # (V, 1 + n)
        cosine = products[:, 0]
        lowest = np.sort(products[:, 1:], 1)[:, : max(1, n // 2)].mean(1) if n > 1 else cosine
        # What is near one member of several is near one of its senses: the mean of logarithms of ranks asks for all.
        shared = np.full(len(table), -np.log(2 * RANKED), np.float32)
        for column in products[:, 1:].T:
            first = np.argpartition(-column, RANKED)[:RANKED]
            first = first[np.argsort(-column[first])]
            shared[first] += (np.log(2 * RANKED) - np.log(np.arange(RANKED) + 10)) / n
        # Words near all members tell the sense they share; phrases with a member in them are near it in any sense.
        others = np.where(self.phrase > 0, -np.inf, shared)
        others[query] = -np.inf
        nearest = np.argpartition(-others, NEIGHBOURS)[:NEIGHBOURS]
        sense = unit(np.exp(SHARPNESS * (others[nearest] - others[nearest].max())) @ table[nearest])
        wider, in_sense = (table @ np.column_stack([unit(direction + 0.5 * sense), sense])).T
        held = np.bincount(self.of[query].indices, minlength=len(self.centres)).astype(np.float32)
        near = self.centres @ direction
        if without is not None:
            held[without], near[without] = 0, -1
        # A concept that holds one member of several speaks for one of its senses, not for what the members share.
        sets = np.flatnonzero(held >= min(n, 2))
        strength = np.zeros(len(held), np.float32)
        strength[sets] = (held[sets] / n) ** 3 * self.set_weight[sets]
        if (self.narrow & (held == n)).any():  # a group may mix kinds that the narrow one tells apart
            strength[~self.narrow] *= WIDE_WEIGHT
        soft = np.exp((near - near.max()) / 0.05)
        common, soft_common = (self.of @ np.column_stack([strength, soft / soft.sum()])).T
        share = self._largest(held / n, sets)
        strongest = self._largest(strength, sets[self.narrow[sets]])
        level = self.rank[query].mean()
        covered, known = share.max(), self.in_concept[query].mean()
        columns = [
            cosine,
            (1 - covered) * in_sense,
            wider,
            lowest,
            shared,
            covered * np.log1p(common / 1e-3),
            covered * share,
            covered * np.log1p(soft_common / 1e-4),
            -covered * np.abs(self.in_concept - known),
            (covered - 1) * np.maximum(self.in_concept - known, 0),
            self.rank,
            np.maximum(self.rank - level, 0),
            (share < 1) * self.phrase,
            (share < 1) * np.maximum(self.phrase - self.phrase[query].mean(), 0),
            covered * np.log1p(strongest / 1e-3),
        ]
        return np.stack(columns, 1)

    def _largest(self, values: np.ndarray, sets: np.ndarray) -> np.ndarray:
        """The largest value of the given sets that hold a word, (V,)."""
        out = np.zeros(len(self.data.words), np.float32)
        for t in sets[np.argsort(values[sets], kind="stable")]:
            out[self.members.indices[self.members.indptr[t] : self.members.indptr[t + 1]]] = values[t]
        return out


@functools.cache
def word_expander(method: str = "blend") -> WordExpander:
    """Return an expander of English words that comes with the library.

    Parameters
    ----------
    method : {"blend", "bayesian-sets", "nearest-vectors", "deep-sets"}, default="blend"
        See `WordExpander`.

    Returns
    -------
    WordExpander
        The same object for the same method.

    Examples
    --------
    >>> [found.element for found in word_expander().expand(["violin", "cello"], k=1)]
    ['piano']

    """
    return WordExpander(method)
