"""The expander that is learnt (Deep Sets, section 4.2 and appendix E)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor

from ..sets import Sets
from ..train import Batch, train
from .base import Expander, Query
from .input import as_dense
from .network import Asked, ScoreNetwork
from .objective import Objective, least_size
from .scorer import BLOCK, Scorer
from .vectors import vectors_of

_EPOCHS, _STEPS = 40, 300


class SetExpander(Expander):
    r"""Learns  $s(x|X) = ρ(φ(x) + Σ_m φ(x_m))$  from sets: members left out of a query go before strangers.

    >>> sets = [["oak", "elm", "fir", "ash"], ["fir", "elm", "yew", "oak"], ["lion", "puma", "lynx", "cat"]]
    >>> expander = SetExpander(epochs=30, random_state=0).fit(sets)
    >>> len(expander.expand(["oak", "elm"], k=3))
    3

    pool, concat: "sum" is the model of the paper; "max" its NN-max. With `concat` φ(x) is not pooled with the query
        but stands beside it: NN-sum-con and NN-max-con.
    loss: "margin", $\max(0, s(x'|X) − s(x|X) + Δ)$ over all pairs of a member x and a stranger x', with Δ = `margin`;
        or "softmax", the cross entropy of x among the strangers.
    embedding: numbers learnt for each element; 0: features of the items only (then new rows lose nothing).
    vectors: where the embedding starts, a dict or a pair (elements, matrix (n, D)); those without one start at 0.
    forget: how often, in training, an element is seen by its features only, as a new one will be.
    phi, rho: widths of the layers of φ, and of ρ before its one output. dropout: between them.
    query: the sizes of the queries in training, from … to; with z, from 0 on: then an empty query can be asked, for
        what goes with z alone. positives: of each set, at most, in a step.
    negatives: strangers in a step, drawn from the vocabulary (or all of it), the same for all sets of the batch.
    epochs: passes over the sets; by default 40, or as many as give 300 steps.
    batch_size, learning_rate, weight_decay, checkpoint_dir: see `deepsets.train.train`.
    patience: epochs without a better mean log rank on the `validation` sets, until training ends; the best weights
        are kept. Without validation sets all epochs are done.
    random_state: the seed. verbose: a progress bar.

    `fits` gives $\log p(x_m)$, the softmax of the scores over the vocabulary: the score alone, ρ of the whole set, is
    the same for every member.
    """

    _takes_z = True
    _not_saved = ("vectors", "checkpoint_dir", "verbose")

    network_: ScoreNetwork
    _scorer: Scorer | None

    def __init__(
        self,
        pool: str = "sum",
        *,
        concat: bool = False,
        loss: str = "margin",
        margin: float = 1.0,
        embedding: int = 50,
        vectors: Any = None,
        forget: float = 0.0,
        phi: tuple[int, ...] = (150, 150),
        rho: tuple[int, ...] = (150, 75),
        dropout: float = 0.0,
        query: tuple[int, int] = (2, 10),
        positives: int = 10,
        negatives: int = 256,
        epochs: int | None = None,
        batch_size: int = 64,
        learning_rate: float = 3e-3,
        weight_decay: float = 0.05,
        patience: int | None = 10,
        random_state: int = 0,
        checkpoint_dir: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.pool = pool
        self.concat = concat
        self.loss = loss
        self.margin = margin
        self.embedding = embedding
        self.vectors = vectors
        self.forget = forget
        self.phi = phi
        self.rho = rho
        self.dropout = dropout
        self.query = query
        self.positives = positives
        self.negatives = negatives
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.random_state = random_state
        self.checkpoint_dir = checkpoint_dir
        self.verbose = verbose

    # --------------------------------------------------------------------------------------------------- fitting

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: tuple[Sets, np.ndarray | None] | None) -> None:
        self._check_settings(sets)
        start = None if self.vectors is None else vectors_of(self.vocabulary_, self.vectors)[0]
        self.n_embedding_ = self.embedding if start is None else start.shape[1]
        if self.n_embedding_ + self.n_features_in_ == 0:
            raise ValueError("embedding=0 leaves nothing to tell elements apart by: give items with features.")
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.random_state)
            self.network_ = self._new_network()
        rows = None if self.features_ is None else _tensor(self.features_)
        data = Batch(sets, z=None if z is None else torch.from_numpy(z))
        self._start(start, rows, data.z)
        objective = Objective(
            rows,
            len(self.vocabulary_),
            loss=self.loss,
            margin=self.margin,
            query=(self.query[0], self.query[1]),
            positives=self.positives,
            negatives=self.negatives,
        )
        held = None
        if validation is not None:
            held = Batch(validation[0], z=None if validation[1] is None else torch.from_numpy(validation[1]))
        steps = -(-len(sets) // self.batch_size)  # of an epoch
        self.history_ = train(
            self.network_,
            objective,
            data,
            epochs=max(_EPOCHS, -(-_STEPS // steps)) if self.epochs is None else self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            validation=held,
            patience=self.patience,
            seed=self.random_state,
            checkpoint_dir=self.checkpoint_dir,
            progress=self.verbose,
        )
        self.network_.eval()
        self._scorer = None

    def _check_settings(self, sets: Sets) -> None:
        wanted = {"pool": ("sum", "max"), "loss": ("margin", "softmax")}
        for name, allowed in wanted.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}; found {getattr(self, name)!r}.")
        if not (0 if self.n_context_ else 1) <= self.query[0] <= self.query[1]:
            raise ValueError(
                "query must be the least and the largest size of a query, the least 0 only where there is a z; "
                f"found {self.query!r}."
            )
        if int(sets.sizes.max()) < least_size(self.query):
            raise ValueError("no set has two members: there is no member to be found from another.")

    def _new_network(self) -> ScoreNetwork:
        return ScoreNetwork(
            len(self.vocabulary_),
            self.n_embedding_,
            self.n_features_in_,
            self.n_context_,
            phi=tuple(self.phi),
            rho=tuple(self.rho),
            pool=self.pool,
            concat=self.concat,
            dropout=self.dropout,
            forget=self.forget,
        )

    @torch.no_grad()
    def _start(self, vectors: np.ndarray | None, rows: Tensor | None, z: Tensor | None) -> None:
        network = self.network_
        if network.embedding is not None:
            if vectors is not None:
                network.embedding.weight.copy_(torch.from_numpy(vectors))
            elif rows is not None:  # what no set has shown adds nothing to the features
                network.embedding.weight.zero_()
        if network.features is not None and rows is not None:
            network.features.learn(rows)
        if network.context is not None and z is not None:
            network.context[0].learn(z)  # type: ignore[operator]

    # ---------------------------------------------------------------------------------------------------- asking

    def _answers_empty(self) -> bool:
        return self.n_context_ > 0 and self.query[0] == 0

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        if self._scorer is None:
            self._scorer = self._ready(np.arange(len(self.vocabulary_)))
        return self._scorer.scores(self._ask(list(queries), z))

    def _score_rows(self, queries: list[Query], candidates: Query, z: np.ndarray | None) -> np.ndarray:
        return self._ready(candidates).scores(self._ask(queries, z))

    def _pick(self, queries: list[np.ndarray], ids: np.ndarray, z: np.ndarray | None) -> np.ndarray:
        return self._score_rows(list(queries), ids, z)

    def _belongs(self, others: list[Query], ids: Query, z: np.ndarray | None) -> np.ndarray:
        # ρ of the whole set is the same whoever is left out: what counts is how much better others would have gone.
        everyone = logsumexp(self._all(others, z).astype(np.float64), axis=1)
        return super()._belongs(others, ids, z) - everyone

    def _ready(self, candidates: Query) -> Scorer:
        scorer = Scorer(self.network_, candidates.shape[0])
        for start in range(0, candidates.shape[0], 16 * BLOCK):
            scorer.put(start, self._elements(candidates[start : start + 16 * BLOCK]))
        return scorer

    @torch.no_grad()
    def _ask(self, queries: list[Query], z: np.ndarray | None) -> Asked:
        phi = [self._elements(query) for query in queries]
        offsets = torch.tensor([0, *(len(part) for part in phi)]).cumsum(0)
        return self.network_.ask(Sets(torch.cat(phi), offsets), None if z is None else torch.from_numpy(z))

    @torch.no_grad()
    def _elements(self, members: Query) -> Tensor:
        if members.ndim == 2:
            return self.network_.elements(None, _tensor(members))
        rows = None if self.features_ is None else _tensor(self.features_[members])
        return self.network_.elements(torch.from_numpy(members), rows)

    def _after_load(self) -> None:
        super()._after_load()
        self._scorer = None


def _tensor(rows: Any) -> Tensor:
    return torch.from_numpy(as_dense(rows)).float()
