"""A small network that weighs the evidence for a candidate: common sets, vectors, frequency."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..nn import mlp
from ..sets import Sets
from ..train import Batch, train
from .base import BaseExpander
from .evidence import Evidence, whiten
from .input import as_dense
from .network import FeatureScaler
from .vectors import read_vectors, vectors_of


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
    width, dropout : int, float, default=128, 0.1
        Of the network's two hidden layers (the second is half as wide).
    epochs, batch_size, learning_rate, weight_decay
        See `deepsets.train.train`.
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
        width: int = 128,
        dropout: float = 0.1,
        epochs: int = 8,
        batch_size: int = 16,
        learning_rate: float = 3e-3,
        weight_decay: float = 0.01,
        random_state: int = 0,
    ) -> None:
        self.vectors = vectors
        self.query = query
        self.head = head
        self.queries_per_set = queries_per_set
        self.negatives = negatives
        self.width = width
        self.dropout = dropout
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.random_state = random_state

    # --------------------------------------------------------------------------------------------------- fitting

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: tuple[Sets, np.ndarray | None] | None) -> None:
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
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
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
        layers = mlp(self.n_evidence_, self.width, max(self.width // 2, 1), 1, activation=nn.SiLU, dropout=self.dropout)
        return nn.Sequential(FeatureScaler(self.n_evidence_), nn.Hardtanh(-6, 6), *layers)

    # --------------------------------------------------------------------------------------------------- queries

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        return self._network_scores(queries, None)

    def _score_ids(self, queries: list[np.ndarray], ids: np.ndarray, z: np.ndarray | None) -> np.ndarray:
        return self._network_scores(queries, ids)

    @torch.inference_mode()
    def _network_scores(self, queries: list[np.ndarray], ids: np.ndarray | None) -> np.ndarray:
        found = []
        for query in queries:
            rows = torch.from_numpy(self._evidence(self._evidence.encode(query), ids))
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


_BLOCK = 4096  # candidates that go through the network at once
