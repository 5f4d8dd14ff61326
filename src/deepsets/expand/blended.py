"""A small network that weighs the evidence for a candidate: common sets, vectors, frequency."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..nn import mlp
from ..sets import Sets
from ..train import Batch, train
from .base import BaseExpander, Validation
from .network import FeatureScaler
from .vectors import read_vectors, unit, vectors_of
from .vocabulary import as_dense

_BLOCK = 4096  # candidates that go through the network at once
_TINY = 1e-5
_NEIGHBOURS = 20


class BlendedExpander(BaseExpander):
    r"""Learned combination of evidence, :math:`s(x|X) = g(e(x, X))`, with g a small network.

    e holds features of the pair: common sets, similar vectors, frequency; it depends on X as a set only. Each training
    set gives queries made of some of its members, and the features are computed **without that set**, as if it had
    never been seen. So the network learns how far to trust sets, vectors and frequency for a new set.

    Parameters
    ----------
    vectors : dict or pair, optional
        A dict from element to vector, or a pair (elements, matrix (n, D)); by default the features of the items;
        without both, sets only. The place in the list (word vectors list frequent words first) is a feature too.
    query : tuple of int, default=(2, 6)
        Smallest and largest size of a query in training.
    head : float, optional
        If sets list typical members first, and queries hold these: in training the m-th member is drawn for the query
        with a weight of exp(−m / head). By default the order of a set has no meaning.
    queries_per_set : int, default=4
        Number of queries drawn from each set.
    negatives : int, default=60
        About so many of the best negatives of each query are all used; of those behind them, the one at rank r with
        probability negatives / r (and a weight that makes up for it).
    epochs : int, default=8
        Passes over the queries.
    random_state : int, default=0
        The seed.

    Examples
    --------
    >>> sets = [["oak", "elm", "fir", "ash"], ["fir", "elm", "yew", "oak"], ["lion", "puma", "lynx", "cat"]]
    >>> expander = BlendedExpander(epochs=20, random_state=0).fit(sets)
    >>> expander.expand(["puma", "lynx"], k=1)[0].element in ("lion", "cat")
    True

    """

    not_saved = ("vectors",)
    network_: nn.Sequential

    def __init__(
        self,
        *,
        vectors: Any = None,
        query: tuple[int, int] = (2, 6),
        head: float | None = None,
        queries_per_set: int = 4,
        negatives: int = 60,
        epochs: int = 8,
        random_state: int = 0,
    ) -> None:
        self.vectors = vectors
        self.query = query
        self.head = head
        self.queries_per_set = queries_per_set
        self.negatives = negatives
        self.epochs = epochs
        self.random_state = random_state

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: Validation) -> None:
        if not 1 <= self.query[0] <= self.query[1]:
            raise ValueError(f"query must be the smallest and the largest size of a query, found {self.query!r}.")
        if int((sets.sizes >= 2).sum()) < 2:
            raise ValueError("wanted at least two sets of two members: each is predicted from the others.")
        size = len(self.vocabulary_)
        place = np.zeros(size)
        if self.vectors is not None:
            table, known = vectors_of(self.vocabulary_, self.vectors)
            names = read_vectors(self.vectors)[0]
            listed = {name: i for i, name in enumerate(names)}
            place = np.array([listed.get(element, len(names)) for element in self.vocabulary_])
        else:
            table = np.zeros((size, 1), np.float32) if self.features_ is None else as_dense(self.features_)
            known = np.full(size, self.features_ is not None)
        length = np.where(known, np.linalg.norm(table - table[known].mean(0) if known.any() else table, axis=1), 0)
        self.traits_ = np.stack([np.log(place + 10), length], 1).astype(np.float32)
        self.features_, self.n_features_in_ = None, 0
        self.table_ = whiten(table, known)
        ones = np.ones(sets.total, np.float32)
        self.members_ = sp.csr_array((ones, sets.values.numpy(), sets.offsets.numpy()), shape=(len(sets), size))
        self._after_load()
        lists = [ids.numpy() for ids in sets.to_list()]
        held = [ids.numpy() for ids in validation[0].to_list()] if validation is not None else []
        rng = np.random.default_rng(self.random_state)
        drawn = [
            self._draw(ids, t, rng) for _ in range(self.queries_per_set) for t, ids in enumerate(lists) if len(ids) >= 2
        ]
        kept = [self._draw(ids, None, rng) for ids in held if len(ids) >= 2]
        self.n_evidence_ = drawn[0].shape[1] - 2
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.random_state)
            self.network_ = self.new_network()
        scaler = self.network_[0]
        assert isinstance(scaler, FeatureScaler)
        scaler.fit(torch.cat(drawn[:200])[:, :-2])
        self.history_ = train(
            self.network_,
            _membership_loss,
            Batch(Sets.from_list(drawn)),
            epochs=self.epochs,
            batch_size=16,
            learning_rate=3e-3,
            weight_decay=0.01,
            warmup=0.1,
            validation=Batch(Sets.from_list(kept)) if kept else None,
            seed=self.random_state,
            progress=False,
        )
        self.network_.eval()

    def _draw(self, members: np.ndarray, t: int | None, rng: np.random.Generator) -> Tensor:
        """Draw a query from set t, and the candidates for it: (C, F + 2), features, 1 for members, and weights."""
        n = min(int(rng.integers(self.query[0], self.query[1] + 1)), len(members) - 1)
        late = 0.0 if self.head is None else np.arange(len(members)) / self.head
        order = np.argsort(late - rng.gumbel(size=len(members)))
        query, wanted = members[order[:n]], members[order[n:]]
        encoded = self._evidence.encode(query, t)
        rank = np.empty(len(self.vocabulary_))
        rank[np.argsort(-self._evidence.quick_scores(encoded))] = np.arange(1, len(rank) + 1)
        chance = np.minimum(1, self.negatives / rank)
        drawn = rng.random(len(chance)) < chance
        drawn[members] = False
        negatives = np.flatnonzero(drawn)
        rows = self._evidence(encoded, np.concatenate([wanted, negatives]))
        truth = np.arange(len(rows)) < len(wanted)
        weight = np.concatenate([np.ones(len(wanted)), 1 / chance[negatives]])
        return torch.from_numpy(np.column_stack([rows, truth, weight]).astype(np.float32))

    def new_network(self) -> nn.Sequential:
        """Build the untrained network."""
        layers = mlp(self.n_evidence_, 128, 64, 1, activation=nn.SiLU, dropout=0.1)
        return nn.Sequential(FeatureScaler(self.n_evidence_), nn.Hardtanh(-6, 6), *layers)

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        return self._score_some(queries, None, z)

    @torch.inference_mode()
    def _score_some(self, queries: list[Any], candidates: Any, z: np.ndarray | None) -> np.ndarray:
        found = []
        for query in queries:
            rows = torch.from_numpy(self._evidence(self._evidence.encode(query), candidates))
            found.append(torch.cat([self.network_(block).squeeze(1) for block in rows.split(_BLOCK)]).numpy())
        return np.stack(found)

    def _after_load(self) -> None:
        super()._after_load()
        if hasattr(self, "members_"):
            self._evidence = Evidence(self.members_, self.traits_, self.table_)


def _membership_loss(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Weighted cross entropy of "is a member", and the number of members."""
    rows, truth, weight = batch.sets.values.tensor_split([-2, -1], 1)
    loss = F.binary_cross_entropy_with_logits(model(rows), truth, weight, reduction="sum")
    return loss, truth.sum()


class QueryEvidence(NamedTuple):
    """What all candidates of one query share: its ids (n,), a set that is left out, and the rest by shape."""

    query: np.ndarray
    without: int | None
    holds: np.ndarray  # (T, n) whether set t holds each member
    weights: np.ndarray  # (T, 5) five weightings of the sets
    cosines: np.ndarray  # (V,) of all elements to the query


class Evidence:
    """Compute features of pairs of a query and a candidate.

    All features taken from sets are sums over sets, of a weight of set t that depends on the query, times whether the
    candidate is in t. `encode(query, without)` names a set whose weight is 0 and that no count includes, so that
    one can train on that set itself. Nothing depends on the order of the query.

    >>> members = sp.csr_array(np.array([[1, 1, 1, 0], [0, 0, 1, 1]], dtype=np.float32))  # (T, V) two sets
    >>> evidence = Evidence(members, traits=np.zeros((4, 1)), table=np.eye(4, dtype=np.float32))  # (V, K), (V, D)
    >>> evidence(evidence.encode(np.array([0, 1])), np.array([2, 3])).shape
    (2, 39)
    """

    def __init__(self, members: sp.csr_array, traits: np.ndarray, table: np.ndarray) -> None:
        self.members, self.traits, self.table = members, traits, table
        self.of = sp.csr_array(members.T)  # (V, T)
        self.count = np.asarray(self.of.sum(1)).ravel()
        self.known = np.linalg.norm(table, axis=1) > 0
        self.centres = unit(np.asarray(members @ table))  # (T, D)
        self.size = float(members.sum() / members.shape[0])

    def encode(self, query: np.ndarray, without: int | None = None) -> QueryEvidence:
        """Compute what all candidates of a query share."""
        holds = self.of[query].toarray().T
        direction = unit(self.table[query].sum(0))
        nearness = self.centres @ direction
        if without is not None:
            holds[without], nearness[without] = 0, -np.inf
        n = holds.sum(1)
        share = self.size / len(self.count)
        bayes = np.log1p(n / (2 * share)) - np.log1p((len(query) - n) / (2 - 2 * share)) + np.log1p(len(query) / 2)
        soft = [_softmax(nearness / 0.05), _softmax(nearness / 0.1), _softmax(nearness / 0.1 + 1.5 * n)]
        weights = np.stack([n, np.where(n > 0, bayes, 0), *soft], 1, dtype=np.float32)
        return QueryEvidence(query, without, holds, weights, self.table @ direction)

    def quick_scores(self, encoded: QueryEvidence) -> np.ndarray:
        """Quick score of all elements, (V,), by which candidates are preselected."""
        return np.log(self.of @ encoded.weights[:, 4] + 1e-4) + 8 * encoded.cosines

    def __call__(self, encoded: QueryEvidence, candidates: np.ndarray | None = None) -> np.ndarray:
        """Compute the features of some candidates, or of all elements: (C, F)."""
        chosen = slice(None) if candidates is None else candidates
        of, table, count = (x[chosen] for x in (self.of, self.table, self.count))
        query, holds, weights = encoded.query, encoded.holds, encoded.weights
        query_count = self.count[query]
        if encoded.without is not None:
            left_out = self.members[[encoded.without]].toarray()[0]
            count, query_count = count - left_out[chosen], query_count - left_out[query]
        sets = self.members.shape[0]
        both = of @ holds  # (C, n) how many sets hold the candidate and the member
        surprise = np.log((both + 0.1) / (np.outer(count + 0.5, query_count + 0.5) / sets + 0.1))
        summed = of @ weights
        columns = [
            np.log1p(summed[:, 0]),
            summed[:, 1],
            summed[:, 1] / (count + 1),
            np.log(summed[:, 2:] + _TINY),
            np.log(summed[:, 2:] + _TINY / 10) - np.log((count + 0.3) / sets)[:, None],
            _spread(both / (query_count + 1)),
            _spread(surprise),
            (both > 0).mean(1),
            _spread(table @ self.table[query].T),
            encoded.cosines[chosen],
            table @ self._further(encoded),
            np.log1p(count),
            count == 0,
            self.known[chosen],
            self.traits[chosen],
        ]
        shared = self._of_query(query, query_count, weights)
        wide = np.broadcast_to(shared, (len(count), len(shared)))
        return np.column_stack([*columns, wide]).astype(np.float32)

    def _further(self, encoded: QueryEvidence) -> np.ndarray:
        """Direction of the query, moved halfway to the elements that are nearest to it."""
        nearest = np.argpartition(-encoded.cosines, min(_NEIGHBOURS, len(self.table) - 1))[:_NEIGHBOURS]
        return unit(unit(self.table[encoded.query].sum(0)) + 0.5 * unit(self.table[nearest].sum(0)))

    def _of_query(self, query: np.ndarray, query_count: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Features of the query itself: how frequent its members are, how near to each other."""
        logs, soft, n = np.log1p(query_count), weights[:, 2], len(query)
        among = self.table[query] @ self.table[query].T
        together = (among.sum() - np.trace(among)) / max(n * (n - 1), 1)
        surprise = -(soft * np.log(soft + 1e-9)).sum()
        frequent = [logs.mean(), logs.min(), logs.max(), (query_count == 0).mean()]
        traits = self.traits[query]
        nearby = [soft.max(), surprise, together, self.known[query].mean()]
        return np.array([*frequent, weights[:, 0].max(), *nearby, *traits.mean(0), *traits.max(0)])


def _spread(values: np.ndarray) -> np.ndarray:
    """Summarise over the query, (C, n) -> (C, 4): mean, largest, second largest and smallest."""
    ordered = np.sort(values, 1)
    return np.column_stack([values.mean(1), ordered[:, -1], ordered[:, -2:][:, 0], ordered[:, 0]])


def _softmax(x: np.ndarray) -> np.ndarray:
    top = x.max()
    weights = np.exp(x - (top if np.isfinite(top) else 0))
    return weights / max(weights.sum(), 1e-30)


def whiten(vectors: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Remove the mean and the first principal direction of vectors (V, D), and reduce the differences of the others.

    Rows have length 1 afterwards, or 0 where nothing is known.
    """
    if not known.any() or vectors.shape[1] < 2:
        return np.where(known[:, None], unit(vectors), 0).astype(np.float32)
    centred = vectors - vectors[known].mean(0)
    size, directions = np.linalg.eigh(centred[known].T.astype(np.float64) @ centred[known])  # by rising variance
    scaled = centred @ (directions[:, :-1] / np.maximum(size[:-1], size[-1] * 1e-9) ** 0.35)
    return np.where(known[:, None], unit(scaled), 0).astype(np.float32)
