"""The methods that an `Expander` blends, by name, with settings that suit baskets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..sets import Sets
from .base import BaseExpander
from .bayesian import BayesianSets
from .cooccurrence import EASE, ItemItem, Popularity
from .learned import SetExpander
from .vectors import NearestVectors, set_vectors

METHODS = ("popularity", "item-item", "ease", "bayesian-sets", "latent-vectors", "deep-sets", "features")
_STEPS = 250  # of "deep-sets", at least


def new_method(
    name: str,
    sets: Sets,
    vocabulary: Sequence[Any],
    random_state: int = 0,
    epochs: int | None = None,
    ridge: float = 100.0,
) -> BaseExpander:
    """Return an unfitted expander with settings that suit baskets.

    Parameters
    ----------
    name : str
        One of `METHODS`.
    sets : Sets
        The sets it will be fitted on.
    vocabulary : sequence
        The elements.
    random_state : int, default=0
        Seed of "deep-sets".
    epochs : int, optional
        Epochs of "deep-sets"; by default as many as give 250 steps, and at least 2.
    ridge : float, default=100.0
        Ridge of "ease".

    Returns
    -------
    BaseExpander

    """
    if name == "popularity":
        return Popularity()
    if name == "item-item":
        return ItemItem()
    if name == "ease":
        return EASE(ridge)
    if name == "bayesian-sets":
        return BayesianSets("beta", strength=max(2.0, len(vocabulary) / 10))
    if name == "latent-vectors":
        vectors = set_vectors(sets, len(vocabulary), 100) if sets.total else None
        return NearestVectors(None if vectors is None else (vocabulary, vectors), center=False, components=0)
    if name == "features":
        return NearestVectors(center=True, components=0)
    if name == "deep-sets":
        steps = -(-len(sets) // 64)
        return SetExpander(
            loss="softmax",
            embedding=64,
            phi=(128,),
            rho=(128,),
            dropout=0.1,
            query=(1, 10),
            positives=3,
            negatives=128,
            weight_decay=0.1,
            epochs=epochs or max(2, -(-_STEPS // steps)),
            random_state=random_state,
        )
    raise ValueError(f"a method is one of {', '.join(METHODS)}; found {name!r}.")
