"""The expanders by name, with settings that suit sets of tokens such as concepts or baskets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..base import BaseExpander
from ..bayesian import BayesianSets
from ..input import read_sets
from ..learned import SetExpander
from ..vectors import NearestVectors, set_vectors

METHODS = ("bayesian-sets", "deep-sets", "nearest-vectors")
_EPOCHS, _STEPS = 5, 300  # at least, of "deep-sets", in batches of 64


def fit_expander(
    sets: Iterable[Iterable[Any]],
    method: str = METHODS[0],
    vocabulary: Sequence[Any] | None = None,
    *,
    epochs: int | None = None,
    seed: int = 0,
    verbose: bool = False,
) -> BaseExpander:
    """An expander of sets of tokens.

    >>> baskets = [["milk", "bread"], ["bread", "butter", "milk"], ["nails", "hammer"], ["hammer", "saw", "nails"]]
    >>> [found.element for found in fit_expander(baskets, "nearest-vectors").expand(["milk"], k=2)]
    ['bread', 'butter']

    method: one of `METHODS`. "deep-sets" is a `SetExpander` that sees elements by the vectors that "nearest-vectors"
        uses (`set_vectors`), and the only one that `epochs` and `seed` matter to. The prior of
        "bayesian-sets" counts for a tenth of the vocabulary: with a weaker one, a set that holds one member of the
        query counts nearly as much as one that holds them all.
    vocabulary: all elements, in the order that decides ties; by default as they come.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; found {method!r}.")
    ids, words = read_sets(sets, list(vocabulary or []), vocabulary is not None)
    if not ids.total:
        raise ValueError("there is nothing to learn from: no set holds an element.")
    if method == "bayesian-sets":
        return BayesianSets(strength=max(2.0, len(words) / 10)).fit(ids, vocabulary=words)
    vectors = (words, set_vectors(ids, len(words)))
    if method == "nearest-vectors":
        return NearestVectors(vectors, center=False, components=0).fit(ids, vocabulary=words)
    return SetExpander(
        loss="softmax",
        embedding=0,
        phi=(256,),
        rho=(512,),  # one wide layer finds how near φ(x) is to the sum sooner than two narrow ones, and scores faster
        query=(2, 5),
        positives=5,
        negatives=128,
        epochs=epochs or max(_EPOCHS, -(-_STEPS // -(-len(ids) // 64))),
        random_state=seed,
        verbose=verbose,
    ).fit(ids, items=vectors)
