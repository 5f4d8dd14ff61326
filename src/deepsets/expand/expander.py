"""The default expander: parts that know different things, blended by what they find of held-out members."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..sets import Sets
from .base import BaseExpander
from .evidence import unit
from .input import as_dense
from .lookup import Members
from .methods import METHODS, new_method
from .metrics import ranks

_HELD_OUT, _TIMES = 0.2, 5  # share of the sets that the weights are learned from, and queries per set at most
_MOST_QUERIES = 3000
_SCORES = 4_000_000  # numbers of one part in memory, while the weights are learned
_PENALTY, _FEWEST_QUERIES = 2.0, 20
# Weights where there are too few sets to learn them from; learned ones are drawn towards these.
_PRIOR = {"popularity": 0.2, "item-item": 1.0, "ease": 1.0, "bayesian-sets": 1.0, "latent-vectors": 0.5}
_PRIOR |= {"deep-sets": 0.1, "features": 0.5}
_RIDGES, _LARGEST_TRIED = (10.0, 50.0, 200.0, 1000.0), 2000


class Expander(BaseExpander):
    r"""Set expansion that blends several methods; the default for baskets, playlists and other sets of items.

    Parts that know different things are fitted on four fifths of the sets. From each of the others one member is held
    out; the weights of the parts' standardised scores, :math:`s = \sum_p w_p s_p`, maximise the probability of the
    held-out members among all elements (softmax). If a single part ranks them better than the blend, it answers alone;
    so the result is not worse than popularity on held-out members. Finally all parts are fitted on all sets.

    Parameters
    ----------
    parts : tuple of str, optional
        Methods to blend, of `METHODS`: "popularity", "item-item" (cosine), "ease" (linear, closed form),
        "bayesian-sets", "latent-vectors" (truncated SVD), "deep-sets" (learned), and "features" (cosine of the items'
        features). By default all, "features" if items have features, and "deep-sets" up to 20,000 elements.
    epochs : int, optional
        Epochs of "deep-sets".
    random_state : int, default=0
        The seed.

    Attributes
    ----------
    parts_ : dict of str to BaseExpander
        The fitted parts, by name.
    weights_ : ndarray
        The weight of each part.
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

    # --------------------------------------------------------------------------------------------------- fitting

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: tuple[Sets, np.ndarray | None] | None) -> None:
        names = self.parts or tuple(
            name
            for name in METHODS
            if (name != "features" or self.features_ is not None)
            and (name != "deep-sets" or len(self.vocabulary_) <= 20_000)
        )
        unknown = [name for name in names if name not in METHODS]
        if unknown:
            raise ValueError(f"parts must be of {', '.join(METHODS)}; found {unknown[0]!r}.")
        if "features" in names and self.features_ is None:
            raise ValueError('the part "features" needs items with features: give `items` with features to fit.')
        self.part_names_ = list(names)
        rng = np.random.default_rng(self.random_state)
        if validation is None:
            order = rng.permutation(len(sets))
            count = max(1, int(_HELD_OUT * len(sets)))
            held, rest = sets[torch.from_numpy(order[:count])], sets[torch.from_numpy(order[count:])]
        else:
            held, rest = validation[0], sets
        queries, truths = _hold_out(held, rng)
        self.weights_ = np.array([_PRIOR[name] for name in names], np.float32)
        self.ridge_ = 100.0
        self.recall_: list[float] = []
        if len(queries) >= _FEWEST_QUERIES and len(names) > 1:
            self.ridge_ = self._choose_ridge(rest, queries, truths) if "ease" in names else 100.0
            self._fit_parts(rest)
            self._learn_weights(queries, truths)
        if validation is None or not self.recall_:
            self._fit_parts(sets)

    def _fit_parts(self, sets: Sets) -> None:
        words = self.vocabulary_
        self.parts_: dict[str, BaseExpander] = {}
        for name in self.part_names_:
            part = new_method(name, sets, words, self.random_state, self.epochs, self.ridge_)
            known = {"items": (words, self.features_)} if name == "features" else {"vocabulary": words}
            self.parts_[name] = part.fit(sets, **known)

    def _choose_ridge(self, sets: Sets, queries: list[np.ndarray], truths: np.ndarray) -> float:
        """The ridge of "ease" that ranks held-out members best; the default where trying several takes long."""
        if min(len(sets), len(self.vocabulary_)) > _LARGEST_TRIED:
            return 100.0
        rows = min(_MOST_QUERIES, max(50, _SCORES // len(self.vocabulary_)))
        found = {}
        for ridge in _RIDGES:
            part = new_method("ease", sets, self.vocabulary_, ridge=ridge).fit(sets, vocabulary=self.vocabulary_)
            found[ridge] = sum(_quality(part._scores(queries[:rows], None), truths[:rows], queries[:rows]))
        return max(found, key=found.__getitem__)

    def _learn_weights(self, queries: list[np.ndarray], truths: np.ndarray) -> None:
        rows = min(_MOST_QUERIES, max(50, _SCORES // len(self.vocabulary_)))
        queries, truths = queries[:rows], truths[:rows]
        table = np.stack([self._part_scores(name, queries) for name in self.part_names_], 2)  # (Q, V, P)
        inputs, wanted = torch.from_numpy(table), torch.from_numpy(truths)
        members = torch.zeros(table.shape[:2], dtype=torch.bool)
        for row, query in zip(members, queries, strict=True):
            row[torch.from_numpy(query)] = True  # no candidates
        prior = torch.from_numpy(self.weights_)
        weights = prior.clone().requires_grad_()
        optimizer = torch.optim.LBFGS([weights], max_iter=50, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            scores = (inputs @ weights).masked_fill(members, -torch.inf)
            value = (
                torch.nn.functional.cross_entropy(scores, wanted)
                + _PENALTY / len(wanted) * (weights - prior).square().sum()
            )
            value.backward()
            return value

        optimizer.step(loss)
        blend = weights.detach().numpy()
        alone = list(np.eye(len(blend), dtype=np.float32))
        found = [_quality(table @ w, truths, queries) for w in [blend, *alone]]
        self.recall_ = [recall for recall, _ in found]
        self.weights_ = [blend, *alone][max(range(len(found)), key=lambda i: sum(found[i]))].astype(np.float32)

    # --------------------------------------------------------------------------------------------------- queries

    def _part_scores(self, name: str, queries: list[np.ndarray]) -> np.ndarray:
        """(Q, V) standardised scores; what a part cannot score has its lowest score."""
        scores = np.array(self.parts_[name]._scores(queries, None), dtype=np.float32)
        if name == "popularity":
            scores = np.log1p(scores)
        low = np.where(np.isfinite(scores), scores, np.inf).min(1, keepdims=True)
        scores = np.where(np.isfinite(scores), scores, np.where(np.isfinite(low), low, 0))
        scores -= scores.mean(1, keepdims=True)
        return scores / np.maximum(scores.std(1, keepdims=True), 1e-9)

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        used = [(name, w) for name, w in zip(self.part_names_, self.weights_, strict=True) if w]
        out = np.zeros((len(queries), len(self.vocabulary_)), np.float32)
        for name, weight in used:
            out += weight * self._part_scores(name, queries)
        return out

    def _score_rows(self, queries: list[Members], candidates: Members, z: np.ndarray | None) -> np.ndarray:
        """New items are scored as the known items that have the most similar features."""
        if self.features_ is None:
            return super()._score_rows(queries, candidates, z)
        table = unit(as_dense(self.features_))
        return self._scores([self._nearest(q, table) for q in queries], z) @ self._likeness(candidates, table).T

    def _nearest(self, members: Members, table: np.ndarray) -> np.ndarray:
        if members.ndim == 1:
            return members
        return np.unique((unit(as_dense(members)) @ table.T).argmax(1))

    def _likeness(self, candidates: Members, table: np.ndarray, count: int = 10) -> sp.csr_array:
        """(C, V) weights of known items that stand for each candidate."""
        if candidates.ndim == 1:
            ones = np.ones(len(candidates), np.float32)
            return sp.csr_array((ones, (np.arange(len(ones)), candidates)), shape=(len(ones), len(table)))
        similar = unit(as_dense(candidates)) @ table.T
        count = min(count, similar.shape[1])
        near = np.argpartition(-similar, count - 1, axis=1)[:, :count]
        weights = np.exp(10 * np.take_along_axis(similar, near, 1))
        weights /= weights.sum(1, keepdims=True)
        rows = np.repeat(np.arange(len(near)), count)
        return sp.csr_array((weights.ravel().astype(np.float32), (rows, near.ravel())), shape=similar.shape)

    def baselines(self) -> dict[str, BaseExpander]:
        """Return the parts "popularity" and "item-item", to compare with; `evaluate` shows them.

        Returns
        -------
        dict of str to BaseExpander
            Those that are among the parts.

        """
        return {name: self.parts_[name] for name in ("popularity", "item-item") if name in self.parts_}

    # ----------------------------------------------------------------------------------------------------- state

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
        for name in self.part_names_:
            known = {n.removeprefix(f"{name}."): v for n, v in facts.items() if n.startswith(f"{name}.")}
            of_part = {n.removeprefix(f"{name}."): t for n, t in tensors.items() if n.startswith(f"{name}.")}
            part = new_method(name, nothing, self.vocabulary_, self.random_state, self.epochs, self.ridge_)
            self.parts_[name] = part.set_state(of_part, known | {"vocabulary_": self.vocabulary_})
        return self


def _hold_out(sets: Sets, rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    """Hold out one member of each set with at least two, several times: queries, and the members to be found."""
    pairs = []
    for ids in sets.to_list():
        for truth in rng.permutation(ids.numpy())[:_TIMES] if len(ids) >= 2 else ():
            pairs.append((np.sort(ids.numpy()[ids.numpy() != truth]), int(truth)))
    pairs = [pairs[i] for i in rng.permutation(len(pairs))]
    return [query for query, _ in pairs], np.array([truth for _, truth in pairs], dtype=np.int64)


def _quality(scores: np.ndarray, truths: np.ndarray, queries: list[np.ndarray]) -> tuple[float, float]:
    """Recall@10 and mean reciprocal rank."""
    found = np.concatenate(ranks(scores, truths[:, None], queries))
    return float(np.mean(found <= 10)), float(np.mean(1 / found))
