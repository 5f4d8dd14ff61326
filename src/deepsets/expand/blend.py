"""The best expander we know: a small network that weighs all evidence for a candidate, learnt from the sets."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..nn import mlp
from ..sets import Sets
from .base import Expander
from .blend_features import Evidence, whiten
from .input import as_dense
from .network import Standard
from .vectors import read_vectors, vectors_of


class Question(NamedTuple):
    """evidence: (C, F) for some candidates. truth: (C,) 1 for members. weight: (C,) how many each stands for."""

    evidence: Tensor
    truth: Tensor
    weight: Tensor


class BlendedExpander(Expander):
    r"""Learns  $s(x|X) = g(e(x, X))$, where e holds what speaks for x:  common sets, near vectors, frequency.

    >>> sets = [["oak", "elm", "fir", "ash"], ["fir", "elm", "yew", "oak"], ["lion", "puma", "lynx", "cat"]]
    >>> expander = BlendedExpander(epochs=20, random_state=0).fit(sets)
    >>> expander.expand(["puma", "lynx"], k=1)[0].element in ("lion", "cat")
    True

    Each training set is asked for with some of its members as query. Its own evidence is computed **without that
    set**, as if it had never been seen; so a network learns how far to trust common sets, vectors and frequency when
    a new set is asked for. e depends on X as a set only.

    vectors: a dict from element to vector or a pair (elements, matrix (n, D)); without it the features of the items;
        without both, what the sets tell. The place in the list (word vectors come with frequent words first) counts.
    query: the sizes of the queries in training, from … to.
    head: sets list their typical members first, and so do queries: in training the m-th member is drawn for the query
        with a weight of exp(−m / head). None: the order of a set says nothing.
    questions: drawn from each set, each with another query.
    negatives: about so many of the best strangers of each query are all looked at; of those behind them, the one at
        rank r with probability negatives / r (and a weight that makes up for it).
    width, dropout: of the network's two hidden layers (the second half as wide).
    epochs, batch_size, learning_rate, weight_decay: passes over the sets, sets a step, and AdamW in one cycle.
    random_state: the seed. `validation` sets are only measured: `history_` has the loss on them after every epoch.
    """

    _not_saved = ("vectors",)
    network_: nn.Sequential

    def __init__(
        self,
        *,
        vectors: Any = None,
        query: tuple[int, int] = (2, 6),
        head: float | None = None,
        questions: int = 4,
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
        self.questions = questions
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
            raise ValueError(f"query must be the least and the largest size of a query, found {self.query!r}.")
        if int((sets.sizes >= 2).sum()) < 2:
            raise ValueError("wanted at least two sets of two members: each is learnt from in the light of the others.")
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
        self._gather()
        lists = [ids.numpy() for ids in sets.to_list()]
        held = [ids.numpy() for ids in validation[0].to_list()] if validation is not None else []
        rng = np.random.default_rng(self.random_state)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.random_state)
            self._learn(lists, held, rng)

    def _learn(self, lists: list[np.ndarray], held: list[np.ndarray], rng: np.random.Generator) -> None:
        asked = [self._ask(ids, t, rng) for _ in range(self.questions) for t, ids in enumerate(lists) if len(ids) >= 2]
        kept = [self._ask(ids, None, rng) for ids in held if len(ids) >= 2]
        self.n_evidence_ = asked[0].evidence.shape[1]
        self.network_ = self._new_network()
        standard = self.network_[0]
        assert isinstance(standard, Standard)
        standard.learn(torch.cat([question.evidence for question in asked[:200]]))
        batches = -(-len(asked) // self.batch_size)
        optimizer = torch.optim.AdamW(self.network_.parameters(), self.learning_rate, weight_decay=self.weight_decay)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.learning_rate, total_steps=self.epochs * batches, pct_start=0.1
        )
        self.history_: list[dict[str, float]] = []
        for _ in range(self.epochs):
            self.network_.train()
            losses = []
            for some in np.array_split(rng.permutation(len(asked)), batches):
                loss = self._loss([asked[i] for i in some])
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.network_.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                losses.append(loss.item())
            self.network_.eval()
            self.history_.append({"loss": float(np.mean(losses))})
            if kept:
                with torch.inference_mode():
                    self.history_[-1]["validation"] = float(
                        np.mean([self._loss([question]).item() for question in kept])
                    )

    def _ask(self, members: np.ndarray, t: int | None, rng: np.random.Generator) -> Question:
        """A query from set t, seen without it."""
        n = min(int(rng.integers(self.query[0], self.query[1] + 1)), len(members) - 1)
        late = 0.0 if self.head is None else np.arange(len(members)) / self.head
        order = np.argsort(late - rng.gumbel(size=len(members)))
        query, wanted = members[order[:n]], members[order[n:]]
        look = self._evidence.look(query, t)
        rank = np.empty(len(self.vocabulary_))
        rank[np.argsort(-self._evidence.first(look))] = np.arange(1, len(rank) + 1)
        chance = np.minimum(1, self.negatives / rank)
        drawn = rng.random(len(chance)) < chance
        drawn[members] = False
        strangers = np.flatnonzero(drawn)
        rows = self._evidence(look, np.concatenate([wanted, strangers]))
        truth = np.arange(len(rows)) < len(wanted)
        weight = np.concatenate([np.ones(len(wanted)), 1 / chance[strangers]])
        return Question(*(torch.from_numpy(x.astype(np.float32)) for x in (rows, truth, weight)))

    def _loss(self, asked: list[Question]) -> Tensor:
        """The cross entropy of "is a member", for a member."""
        rows, truth, weight = (torch.cat(parts) for parts in zip(*asked, strict=True))
        scores = self.network_(rows).squeeze(1)
        return F.binary_cross_entropy_with_logits(scores, truth, weight, reduction="sum") / truth.sum()

    def _new_network(self) -> nn.Sequential:
        layers = mlp(self.n_evidence_, self.width, max(self.width // 2, 1), 1, activation=nn.SiLU, dropout=self.dropout)
        return nn.Sequential(Standard(self.n_evidence_), nn.Hardtanh(-6, 6), *layers)

    # ---------------------------------------------------------------------------------------------------- asking

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        return self._answer(queries, None)

    def _pick(self, queries: list[np.ndarray], ids: np.ndarray, z: np.ndarray | None) -> np.ndarray:
        return self._answer(queries, ids)

    @torch.inference_mode()
    def _answer(self, queries: list[np.ndarray], ids: np.ndarray | None) -> np.ndarray:
        found = []
        for query in queries:
            rows = torch.from_numpy(self._evidence(self._evidence.look(query), ids))
            found.append(torch.cat([self.network_(block).squeeze(1) for block in rows.split(_BLOCK)]).numpy())
        return np.stack(found)

    def _gather(self) -> None:
        self._evidence = Evidence(self.members_, self.traits_, self.table_)

    def _after_load(self) -> None:
        super()._after_load()
        if hasattr(self, "members_"):
            self._gather()


_BLOCK = 4096  # candidates that go through the network at once
