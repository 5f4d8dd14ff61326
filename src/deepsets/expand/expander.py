"""The default expander: methods that know different things, blended by what they find of held-out members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..sets import Sets
from .base import BaseExpander, Members, Validation
from .bayesian import BayesianSets
from .cooccurrence import EASE, ItemItem, Popularity
from .learned import SetExpander
from .vectors import NearestVectors, set_vectors, unit
from .vocabulary import as_dense

METHODS = tuple("popularity item-item ease ease-intercept bayesian-sets latent-vectors deep-sets features".split())
_FOLDS, _TIMES = 3, 5  # folds that members are held out from, and queries per set at most
_FEWEST_QUERIES, _MOST_QUERIES = 20, 6000
_SCORES = 4_000_000  # numbers of one part in memory, while the weights are learned
_RIDGES, _LARGEST_TRIED = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0), 2000
_TRIED = (0.03, 0.1, 0.2, 0.4, 0.7, 1.0)  # weights of a part that is added to the blend
_MOST_ADDED = 5
_LENGTHS = (2, 5, 15)  # queries of up to so many members, and longer ones, have weights of their own
_FEWEST_NATURAL = 500  # where there are fewer queries of a length, longer ones are cut to it
# Weights where there are too few sets to learn them from.
_UNLEARNED = {"popularity": 0.2, "latent-vectors": 0.5, "deep-sets": 0.1, "features": 0.5}


def new_method(
    name: str,
    sets: Sets,
    vocabulary: Sequence[Any],
    random_state: int = 0,
    epochs: int | None = None,
    ridge: float = 100.0,
) -> BaseExpander:
    """Return an unfitted expander, one of `METHODS`, with settings that suit baskets."""
    if name == "popularity":
        return Popularity()
    if name == "item-item":
        return ItemItem()
    if name in ("ease", "ease-intercept"):
        return EASE(ridge, intercept=name != "ease")
    if name == "bayesian-sets":
        return BayesianSets("beta", strength=max(2.0, len(vocabulary) / 10))
    if name == "latent-vectors":
        vectors = (vocabulary, set_vectors(sets, len(vocabulary), 100)) if sets.total else None
        return NearestVectors(vectors, center=False, components=0)
    if name == "features":
        return NearestVectors(center=True, components=0)
    if name == "deep-sets":
        steps = -(-len(sets) // 64)
        sizes: dict[str, Any] = {"embedding": 64, "phi": (128,), "rho": (128,), "query": (1, 10), "positives": 3}
        epochs = epochs or max(2, -(-250 // steps))
        training: dict[str, Any] = {"negatives": 128, "dropout": 0.1, "weight_decay": 0.1, "epochs": epochs}
        return SetExpander(loss="softmax", random_state=random_state, **sizes, **training)
    raise ValueError(f"a method is one of {', '.join(METHODS)}; found {name!r}.")


class Expander(BaseExpander):
    r"""Set expansion that blends several methods; the default for baskets, playlists and other sets of items.

    The sets are split into three folds. Each part is fitted on two of them and ranks members that are held out from
    sets of the third. The blend starts with the part that ranks them best, by the mean of :math:`1 / \log_2(1 + r)`
    over their ranks r; then parts are added, :math:`s = \sum_p w_p s_p` of scores that are standardised for each query,
    as long as one improves this mean by more than its standard error (forward selection). So the blend is not worse
    than its best part on held-out members. Finally all parts are fitted on all sets.

    Parameters
    ----------
    parts : tuple of str, optional
        Methods to blend, of `METHODS`: "popularity", "item-item" (cosine), "ease" and "ease-intercept" (linear, closed
        form), "bayesian-sets", "latent-vectors" (truncated SVD), "deep-sets" (learned), and "features" (cosine of the
        items' features). By default all but "deep-sets", and "features" if items have features.
    epochs : int, optional
        Epochs of "deep-sets".
    random_state : int, default=0
        The seed.

    Attributes
    ----------
    parts_ : dict of str to BaseExpander
        The fitted parts, by name.
    weights_ : ndarray of shape (4, P)
        The weight of each part, for queries of up to 2, up to 5, up to 15 and more members.
    recall_ : list of float
        Recall@10 on the held-out members: of the blend, then of each part.

    Examples
    --------
    >>> baskets = [["milk", "bread"], ["bread", "butter", "milk"], ["nails", "hammer"], ["hammer", "saw", "nails"]] * 10
    >>> expander = Expander(parts=("popularity", "item-item", "ease")).fit(baskets)
    >>> [found.element for found in expander.expand(["milk"], k=2)]
    ['bread', 'butter']
    >>> [found.element for found in expander.parts_["ease"].expand(["milk"], k=1)]
    ['bread']

    """

    def __init__(
        self, parts: tuple[str, ...] | None = None, *, epochs: int | None = None, random_state: int = 0
    ) -> None:
        self.parts = parts
        self.epochs = epochs
        self.random_state = random_state

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: Validation) -> None:
        # "deep-sets" takes most of the time of a fit; baskets and MovieLens have the same results without it.
        wanted = {"features": self.features_ is not None, "deep-sets": False}
        self.part_names_ = list(self.parts or (name for name in METHODS if wanted.get(name, True)))
        unknown = [name for name in self.part_names_ if name not in METHODS]
        if unknown:
            raise ValueError(f"parts must be of {', '.join(METHODS)}; found {unknown[0]!r}.")
        if "features" in self.part_names_ and self.features_ is None:
            raise ValueError('the part "features" needs items with features: give `items` with features to fit.')
        unlearned = np.array([_UNLEARNED.get(name, 1.0) for name in self.part_names_], np.float32)
        self.weights_ = np.tile(unlearned, (len(_LENGTHS) + 1, 1))
        self.ridges_ = [100.0] * len(self.part_names_)
        self.recall_: list[float] = []
        if len(self.part_names_) > 1:
            self._learn_weights(sets, None if validation is None else validation[0])
        ridges = dict(zip(self.part_names_, self.ridges_, strict=True))
        self.parts_ = {name: self._fit_part(name, sets, ridge) for name, ridge in ridges.items()}

    def _fit_part(self, name: str, sets: Sets, ridge: float) -> BaseExpander:
        words = self.vocabulary_
        known = {"items": (words, self.features_)} if name == "features" else {"vocabulary": words}
        return new_method(name, sets, words, self.random_state, self.epochs, ridge).fit(sets, **known)

    def _learn_weights(self, sets: Sets, validation: Sets | None) -> None:
        """Choose ridges and weights by the ranks of held-out members."""
        rng = np.random.default_rng(self.random_state)
        small = min(len(sets), len(self.vocabulary_)) <= _LARGEST_TRIED
        if validation is not None:
            folds = [(sets, validation)]
        else:
            places = np.array_split(rng.permutation(len(sets)), _FOLDS)
            folds = [(_take(sets, np.setdiff1d(np.arange(len(sets)), held)), _take(sets, held)) for held in places]
            folds = folds if small else folds[:1]
        most = min(_MOST_QUERIES, max(60, _SCORES // len(self.vocabulary_))) // len(folds)
        asked = [_hold_out(held, rng, most) for _, held in folds]
        truths = np.concatenate([truth for _, truth in asked])
        if len(truths) < _FEWEST_QUERIES or any(rest.total == 0 for rest, _ in folds):
            return
        cut = [[_cut(queries, length, rng) for queries, _ in asked] for length in range(len(self.weights_))]
        parts: list[list[BaseExpander]] = []  # of each method, one per fold
        for p, name in enumerate(self.part_names_):
            if name.startswith("ease") and small:
                tried = [[self._fit_part(name, folds[0][0], ridge)] for ridge in _RIDGES]
                gains = [_gains(_held_out_scores(part, asked[:1]), asked[0][1]).mean() for part in tried]
                self.ridges_[p] = _RIDGES[int(np.argmax(gains))]
            parts.append([self._fit_part(name, rest, self.ridges_[p]) for rest, _ in folds])
        tables = [_held_out_scores(part, asked) for part in parts]
        every, blend = _select(tables, truths)
        self.recall_ = [float(np.mean(_held_out_ranks(table, truths) <= 10)) for table in [blend, *tables]]
        for length, chosen in enumerate(cut):
            self.weights_[length] = every
            found = np.concatenate([truth[places] for (_, truth), (_, places) in zip(asked, chosen, strict=True)])
            if len(found) >= _FEWEST_QUERIES:
                tables = [_held_out_scores(part, chosen) for part in parts]
                own, blend = _select(tables, found)
                usual = sum(weight * table for weight, table in zip(every, tables, strict=True) if weight)
                better = _gains(blend, found) - _gains(usual, found)
                if better.mean() > 2 * better.std() / np.sqrt(len(better)):
                    self.weights_[length] = own

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        weights = self.weights_[np.searchsorted(_LENGTHS, [len(query) for query in queries])]  # (Q, P)
        out = np.zeros((len(queries), len(self.vocabulary_)), np.float32)
        for weight, name in zip(weights.T, self.part_names_, strict=True):
            if len(rows := np.flatnonzero(weight)):
                scores = self.parts_[name]._scores([queries[q] for q in rows], None)
                out[rows] += weight[rows, None] * _standardised(scores)
        return out

    def _fit_scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        # One scale for all queries: what fits its query least has the lowest score. Popularity is the same for all.
        weights = self.weights_[np.searchsorted(_LENGTHS, max(len(query) for query in queries))]
        used = {name: weight for name, weight in zip(self.part_names_, weights, strict=True) if weight}
        used = {name: weight for name, weight in used.items() if name != "popularity"} or used
        out = np.zeros((len(queries), len(self.vocabulary_)), np.float32)
        for name, weight in used.items():
            out += weight * _standardised(self.parts_[name]._fit_scores(queries, None), axis=None)
        return out

    def _member_fits(self, others: list[Members], members: Members, z: np.ndarray | None) -> np.ndarray:
        if members.ndim > 1:
            return super()._member_fits(others, members, z)
        return self._fit_scores(others, z)[np.arange(len(others)), members]

    def _score_some(self, queries: list[Members], candidates: Members, z: np.ndarray | None) -> np.ndarray:
        """New items are scored as the known items that have the most similar features."""
        if self.features_ is None:
            return super()._score_some(queries, candidates, z)
        table = unit(as_dense(self.features_))
        known = [q if q.ndim == 1 else np.unique((unit(as_dense(q)) @ table.T).argmax(1)) for q in queries]
        scores = self._scores(known, z)
        return scores[:, candidates] if candidates.ndim == 1 else scores @ _likeness(candidates, table).T

    def baselines(self) -> dict[str, BaseExpander]:
        """Return the parts "popularity" and "item-item", where they are among the parts; `evaluate` shows them."""
        return {name: self.parts_[name] for name in ("popularity", "item-item") if name in self.parts_}

    def get_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what was learned, the parts' under their names."""
        tensors, facts = super().get_state()
        for name, part in self.parts_.items():
            own, known = part.get_state()
            tensors |= {f"{name}.{n}": tensor for n, tensor in own.items()}
            facts |= {f"{name}.{n}": value for n, value in known.items() if n != "vocabulary_"}
        return tensors, facts

    def set_state(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Take over what `get_state` returned."""
        own = {n: t for n, t in tensors.items() if n.split(".")[0] not in METHODS}
        super().set_state(own, {n: v for n, v in facts.items() if n.split(".")[0] not in METHODS})
        nothing = Sets(torch.zeros(0, dtype=torch.long), torch.zeros(2, dtype=torch.long))
        self.parts_ = {}
        for name, ridge in zip(self.part_names_, self.ridges_, strict=True):
            known = {n.removeprefix(f"{name}."): v for n, v in facts.items() if n.startswith(f"{name}.")}
            of_part = {n.removeprefix(f"{name}."): t for n, t in tensors.items() if n.startswith(f"{name}.")}
            part = new_method(name, nothing, self.vocabulary_, self.random_state, self.epochs, ridge)
            self.parts_[name] = part.set_state(of_part, known | {"vocabulary_": self.vocabulary_})
        return self


def _take(sets: Sets, places: np.ndarray) -> Sets:
    return sets[torch.from_numpy(places)]


def _hold_out(sets: Sets, rng: np.random.Generator, most: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Hold out one member of each set with at least two, several times: queries, and the members to be found."""
    pairs = []
    for ids in sets.to_list():
        for truth in rng.permutation(ids.numpy())[:_TIMES] if len(ids) >= 2 else ():
            pairs.append((np.sort(ids.numpy()[ids.numpy() != truth]), int(truth)))
    pairs = [pairs[i] for i in rng.permutation(len(pairs))[:most]]
    return [query for query, _ in pairs], np.array([truth for _, truth in pairs], dtype=np.int64)


def _cut(queries: list[np.ndarray], length: int, rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    """Queries of a class of `_LENGTHS`, longer ones cut to it if these are few, and their places."""
    low, high = (0, *_LENGTHS, 10**9)[length : length + 2]
    sizes = np.array([len(query) for query in queries])
    places = np.flatnonzero((sizes > low) & (sizes <= high))
    longer = rng.permutation(np.flatnonzero(sizes > high))[: max(0, _FEWEST_NATURAL - len(places))]
    places = np.concatenate([places, longer])
    wanted = np.minimum(sizes[places], rng.integers(low + 1, high + 1, len(places)))
    wanted[: len(places) - len(longer)] = sizes[places[: len(places) - len(longer)]]
    return [np.sort(rng.permutation(queries[q])[:n]) for q, n in zip(places, wanted, strict=True)], places


def _held_out_scores(parts: list[BaseExpander], asked: Sequence[tuple[list[np.ndarray], Any]]) -> np.ndarray:
    """Standardised scores of a method, one part per fold, for the queries of the fold; -inf for their members."""
    found = []
    for part, (queries, _) in zip(parts, asked, strict=True):
        if queries:
            scores = _standardised(part._scores(queries, None))
            for row, query in zip(scores, queries, strict=True):
                row[query] = -np.inf
            found.append(scores)
    return np.concatenate(found)


def _standardised(scores: np.ndarray, axis: int | None = 1) -> np.ndarray:
    """(Q, V) scores with mean 0 and standard deviation 1; what a part cannot score has its lowest score."""
    scores = np.array(scores, dtype=np.float32)
    finite = np.isfinite(scores)
    if not finite.all():
        low = np.where(finite, scores, np.inf).min(axis, keepdims=True)
        scores = np.where(finite, scores, np.where(np.isfinite(low), low, 0))
    scores -= scores.mean(axis, keepdims=True)
    scores /= np.maximum(scores.std(axis, keepdims=True), 1e-9)
    return scores


def _held_out_ranks(scores: np.ndarray, truths: np.ndarray) -> np.ndarray:
    """Rank of each query's truth, from 1; equal scores share the mean of their ranks."""
    own = scores[np.arange(len(truths)), truths][:, None]
    return (scores > own).sum(1) + ((scores == own).sum(1) + 1) / 2


def _gains(scores: np.ndarray, truths: np.ndarray) -> np.ndarray:
    return 1 / np.log2(1 + _held_out_ranks(scores, truths))


def _select(tables: list[np.ndarray], truths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Forward selection: weights of the parts, and the scores of the blend."""
    alone = [_gains(table, truths) for table in tables]
    best = int(np.argmax([gains.mean() for gains in alone]))
    weights, blend, reached = np.zeros(len(tables), np.float32), tables[best], alone[best]
    weights[best] = 1
    for _ in range(_MOST_ADDED):
        found = {(p, w): _gains(blend + w * table, truths) for p, table in enumerate(tables) for w in _TRIED}
        p, w = max(found, key=lambda tried: found[tried].mean())
        better = found[p, w] - reached
        if better.mean() <= better.std() / np.sqrt(len(better)):
            break
        weights[p], blend, reached = weights[p] + w, blend + w * tables[p], found[p, w]
    return weights, blend


def _likeness(rows: np.ndarray | sp.csr_array, table: np.ndarray, count: int = 10) -> sp.csr_array:
    """(C, V) weights of the known items that stand for each new one."""
    similar = unit(as_dense(rows)) @ table.T
    count = min(count, similar.shape[1])
    near = np.argpartition(-similar, count - 1, axis=1)[:, :count]
    weights = np.exp(10 * np.take_along_axis(similar, near, 1))
    weights /= weights.sum(1, keepdims=True)
    places = np.repeat(np.arange(len(near)), count)
    return sp.csr_array((weights.ravel().astype(np.float32), (places, near.ravel())), shape=similar.shape)
