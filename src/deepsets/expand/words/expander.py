"""The expanders of English words that come with the library."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

import numpy as np

from ..base import BaseExpander
from ..bayesian import BayesianSets
from ..vectors import NearestVectors
from ..vocabulary import Vocabulary
from .data import WordData, word_data
from .evidence import FEATURES, PRESELECTED, WordEvidence, quick_scores

WORD_METHODS = ("blend", "bayesian-sets", "nearest-vectors", "deep-sets")


class _Words(BaseExpander):
    """What the expanders of words share: the vocabulary, and elements that are no useful answers."""

    odd_shares = (0.01, 0.003)  # most words have nothing to do with a query
    data: WordData

    def filter_scores(self, members: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Remove function words, names of the query's kind, its inflections, and all but the best inflection of others.

        Parameters
        ----------
        members : ndarray of int
            Ids of the query.
        scores : ndarray of shape (V,)
            Scores of all words.

        Returns
        -------
        ndarray of shape (V,)
            -inf for words that are no answers.

        """
        stems = self.data.stems
        best = np.full(len(stems), -np.inf, scores.dtype)
        np.maximum.at(best, stems, scores)
        asked = np.zeros(len(stems), dtype=bool)
        asked[stems[members]] = True
        asked[self._names_of_concepts(members)] = True
        return np.where(self.data.function | asked[stems] | (scores < best[stems]), -np.inf, scores)

    def _names_of_concepts(self, members: np.ndarray) -> list[int]:
        """Words that name what the members are, such as "cheese" for cheddar and brie, and are no such thing."""
        held = np.asarray(self.data.members[:, members].sum(1)).ravel()
        inside = set(self.data.members[np.flatnonzero(held >= min(2, len(members)))].indices.tolist())
        found = {self._vocabulary.find(self.data.names[t]) for t in np.flatnonzero(held)} - {None}
        return [int(self.data.stems[i]) for i in found - inside]

    def _common_sets(self, members: np.ndarray, element: int) -> list[str]:
        of = self.data.members[:, [element]].toarray()[:, 0] > 0
        held = self.data.members[of][:, members].sum(1)
        order = np.argsort(-held, kind="stable")
        names = [self.data.names[t] for t in np.flatnonzero(of)[order] if t is not None]
        return list(dict.fromkeys(name for name, n in zip(names, held[order], strict=True) if n))[:3]


class WordExpander(_Words):
    """Expand sets of English words and phrases; nothing to fit or download.

    The score of a word is a weighted sum of features of the pair (query, word): cosines of word vectors to the whole
    query and to its least similar members, concepts of WordNet that hold members of the query (the more members, the
    more weight, so that the sense all members share decides), concepts near the query, and frequency. The weights were
    learned by `scripts/word_blend.py` from lists of things that belong together.

    Examples
    --------
    >>> expander = WordExpander()
    >>> sorted(found.element for found in expander.expand("monday, tuesday", k=5))
    ['Friday', 'Saturday', 'Sunday', 'Thursday', 'Wednesday']
    >>> expander.explain(["lion", "tiger"], "leopard").sets[0]
    'big cat'

    """

    _needs_sets = False

    def __init__(self) -> None:
        self.data = word_data()
        self.vocabulary_ = self.data.words
        self.features_, self.n_features_in_, self.n_context_ = None, 0, 0
        self._vocabulary = Vocabulary(self.vocabulary_)
        self._evidence = WordEvidence(self.data)
        weights = json.loads(resources.files(__package__).joinpath("weights.json").read_text())
        self._weights = np.array([weights[name] for name in FEATURES], np.float32)

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        return np.stack([self._rank(self._evidence(query)) for query in queries])

    def _rank(self, features: np.ndarray) -> np.ndarray:
        """Scores by the learned weights for preselected words; the others follow."""
        quick = quick_scores(features)
        chosen = np.argpartition(-quick, PRESELECTED)[:PRESELECTED]
        scores = features[chosen] @ self._weights
        out = quick - quick[chosen].min() + scores.min()
        out[chosen] = scores
        return out


class _WordsBy(_Words):
    """Words scored by one method; the filters are those of `WordExpander`."""

    _needs_sets = False

    def __init__(self, method: str) -> None:
        self.method = method
        self.data = word_data()
        self.vocabulary_ = self.data.words
        self.features_, self.n_features_in_, self.n_context_ = None, 0, 0
        self._vocabulary = Vocabulary(self.vocabulary_)
        self._expander = _fit(method, self.data)

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        return self._expander._scores(queries, z)

    def _member_fits(self, others: list[Any], members: Any, z: np.ndarray | None) -> np.ndarray:
        return self._expander._member_fits(others, members, z)


def _fit(method: str, data: WordData) -> BaseExpander:
    if method == "nearest-vectors":
        return NearestVectors((data.words, data.vectors), center=False, components=0).fit()
    if method == "bayesian-sets":
        # The prior counts for a tenth of the words in concepts: with a weaker one, a concept that holds one member of
        # the query counts nearly as much as one that holds them all.
        strength = len(np.unique(data.members.indices)) / 10
        return BayesianSets("beta", strength).fit(items=(data.words, data.members.T.tocsr()))
    from .deep_sets import load_deep_sets

    return load_deep_sets(data)


@functools.cache
def word_expander(method: str = "blend") -> BaseExpander:
    """Return an expander of English words that comes with the library.

    Parameters
    ----------
    method : {"blend", "bayesian-sets", "nearest-vectors", "deep-sets"}, default="blend"
        "blend": `WordExpander`. The others use concepts alone, vectors alone, or a Deep Sets network that was trained
        on the concepts with the vectors as features.

    Returns
    -------
    BaseExpander
        The same object for the same method.

    Examples
    --------
    >>> [found.element for found in word_expander().expand(["violin", "cello"], k=1)]
    ['piano']

    """
    if method not in WORD_METHODS:
        raise ValueError(f"method must be one of {', '.join(WORD_METHODS)}; found {method!r}.")
    return WordExpander() if method == "blend" else _WordsBy(method)
