"""The learned expander (Deep Sets, section 4.2 and appendix E)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor

from ..sets import Sets
from ..train import Batch, train
from .base import BaseExpander, Members, Validation
from .network import EncodedQueries, ExpansionObjective, ScoreNetwork, least_size
from .scorer import BLOCK, Scorer
from .vectors import vectors_of
from .vocabulary import as_dense

_EPOCHS, _STEPS = 40, 300
_FIT_SCORES = 1 << 21  # of `fits`: all elements of 61,000 for sets of up to 34 members, 8,192 of them for 256


class SetExpander(BaseExpander):
    r"""Learned set expansion, :math:`s(x|X) = ρ(φ(x) + Σ_m φ(x_m))` (Deep Sets, section 4.2 and appendix E).

    Trained so that members left out of a query rank before negatives, elements drawn from the vocabulary. `fits`
    returns :math:`\log p(x_m)`, the softmax of the scores over the vocabulary, because the score alone, ρ of the whole
    set, is the same for every member.

    Parameters
    ----------
    pool : {"sum", "max"}, default="sum"
        "sum" is the model of the paper, "max" its NN-max.
    concat : bool, default=False
        Concatenate φ(x) with the pooled query instead of pooling it: NN-sum-con and NN-max-con.
    loss : {"margin", "softmax"}, default="margin"
        "margin": :math:`\max(0, s(x'|X) − s(x|X) + Δ)` over pairs of a member x and a negative x'. "softmax": the
        cross entropy of x among the negatives.
    margin : float, default=1.0
        Δ of the margin loss.
    embedding : int, default=50
        Width of the embedding learned for each element; 0 for features only (then new elements lose nothing).
    vectors : dict or pair, optional
        Initial embeddings: a dict from element to vector, or a pair (elements, matrix (n, D)); elements without a
        vector start at 0.
    embedding_dropout : float, default=0.0
        Probability, in training, that an element is represented by its features only, as new elements will be.
    phi, rho : tuple of int, default=(150, 150), (150, 75)
        Widths of the layers of φ, and of ρ before its output.
    dropout : float, default=0.0
        Dropout between layers.
    query : tuple of int, default=(2, 10)
        Smallest and largest size of a query in training; with z the smallest may be 0, so that an empty query can be
        expanded by z alone.
    positives : int, default=10
        Largest number of members to be found per set and step.
    negatives : int, default=256
        Negatives per step, drawn from the vocabulary, the same for all sets of the batch.
    epochs : int, optional
        Passes over the sets; by default 40, or as many as give 300 steps.
    batch_size, learning_rate, weight_decay, average_weights, checkpoint_dir
        See `deepsets.train.train`.
    patience : int, default=10
        Epochs without a better mean log rank on the validation sets until training stops; the best weights are kept.
    random_state : int, default=0
        The seed.
    verbose : bool, default=False
        Show a progress bar.

    Examples
    --------
    >>> sets = [["oak", "elm", "fir", "ash"], ["fir", "elm", "yew", "oak"], ["lion", "puma", "lynx", "cat"]]
    >>> expander = SetExpander(epochs=30, random_state=0).fit(sets)
    >>> len(expander.expand(["oak", "elm"], k=3))
    3

    """

    accepts_z = True
    not_saved = ("vectors", "checkpoint_dir", "verbose")

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
        embedding_dropout: float = 0.0,
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
        average_weights: float = 0.0,
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
        self.embedding_dropout = embedding_dropout
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
        self.average_weights = average_weights
        self.patience = patience
        self.random_state = random_state
        self.checkpoint_dir = checkpoint_dir
        self.verbose = verbose

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: Validation) -> None:
        self._check_settings(sets)
        start = None if self.vectors is None else vectors_of(self.vocabulary_, self.vectors)[0]
        self.n_embedding_ = self.embedding if start is None else start.shape[1]
        if self.n_embedding_ + self.n_features_in_ == 0:
            raise ValueError("with embedding=0 elements need features: give items with features.")
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.random_state)
            self.network_ = self.new_network()
        rows = None if self.features_ is None else _tensor(self.features_)
        data = Batch(sets, z=None if z is None else torch.from_numpy(z))
        self._initialize(start, rows, data.z)
        objective = ExpansionObjective(
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
            average_weights=self.average_weights,
            validation=held,
            patience=self.patience,
            seed=self.random_state,
            checkpoint_dir=self.checkpoint_dir,
            progress=self.verbose,
        )
        self.network_.eval()
        self._scorer = None

    def _check_settings(self, sets: Sets) -> None:
        for name, allowed in (("pool", ("sum", "max")), ("loss", ("margin", "softmax"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}; found {getattr(self, name)!r}.")
        if not (0 if self.n_context_ else 1) <= self.query[0] <= self.query[1]:
            raise ValueError(
                f"query must be the smallest and the largest size of a query, 0 only with z; found {self.query!r}."
            )
        if int(sets.sizes.max()) < least_size(self.query):
            raise ValueError("no set has two members, so no member can be found from another.")

    def new_network(self) -> ScoreNetwork:
        """Build the untrained network."""
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
            embedding_dropout=self.embedding_dropout,
        )

    @torch.no_grad()
    def _initialize(self, vectors: np.ndarray | None, rows: Tensor | None, z: Tensor | None) -> None:
        network = self.network_
        if network.embedding is not None:
            if vectors is not None:
                network.embedding.weight.copy_(torch.from_numpy(vectors))
            elif rows is not None:  # elements in no set add nothing to their features
                network.embedding.weight.zero_()
        if network.features is not None and rows is not None:
            network.features.fit(rows)
        if network.context is not None and z is not None:
            network.context[0].fit(z)  # type: ignore[operator]

    def _answers_empty(self) -> bool:
        return self.n_context_ > 0 and self.query[0] == 0

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None, best: int | None = None) -> np.ndarray:
        if self._scorer is None:
            self._scorer = self._new_scorer(np.arange(len(self.vocabulary_)))
        return self._scorer.scores(self._encode(list(queries), z), best)

    def _best_scores(self, queries: list[Members], z: np.ndarray | None, best: int | None) -> np.ndarray:
        by_ids = all(query.ndim == 1 for query in queries)
        return self._scores(queries, z, best) if by_ids else self._all(queries, z)

    def _score_some(self, queries: list[Members], candidates: Members, z: np.ndarray | None) -> np.ndarray:
        return self._new_scorer(candidates).scores(self._encode(queries, z))

    def _member_fits(self, others: list[Members], members: Members, z: np.ndarray | None) -> np.ndarray:
        # ρ of the whole set is the same whichever member is left out: compare with all other elements, or with evenly
        # spaced ones where a large set would need more than _FIT_SCORES scores.
        count = len(self.vocabulary_)
        some = min(count, _FIT_SCORES // len(others))
        spaced = np.linspace(0, count - 1, some).astype(np.int64)
        found = self._all(others, z) if some == count else self._score_some(others, spaced, z)
        total = logsumexp(found.astype(np.float64), axis=1) + np.log(count / some)
        return super()._member_fits(others, members, z) - total

    def _new_scorer(self, candidates: Members) -> Scorer:
        scorer = Scorer(self.network_, candidates.shape[0])
        for start in range(0, candidates.shape[0], 16 * BLOCK):
            scorer.put(start, self._phi(candidates[start : start + 16 * BLOCK]))
        return scorer

    @torch.no_grad()
    def _encode(self, queries: list[Members], z: np.ndarray | None) -> EncodedQueries:
        offsets = torch.tensor([0, *(query.shape[0] for query in queries)]).cumsum(0)
        if all(query.ndim == 1 for query in queries):
            ids, places = np.unique(np.concatenate(queries), return_inverse=True)
            phi = self._phi(ids)[torch.from_numpy(places)]  # each element once, in however many queries it is
        else:
            phi = torch.cat([self._phi(query) for query in queries])
        return self.network_.encode_queries(Sets(phi, offsets), None if z is None else torch.from_numpy(z))

    @torch.no_grad()
    def _phi(self, members: Members) -> Tensor:
        if members.ndim == 2:
            return self.network_.encode_elements(None, _tensor(members))
        rows = None if self.features_ is None else _tensor(self.features_[members])
        return self.network_.encode_elements(torch.from_numpy(members), rows)

    def _after_load(self) -> None:
        super()._after_load()
        self._scorer = None


def _tensor(rows: Any) -> Tensor:
    return torch.from_numpy(as_dense(rows)).float()
