"""The network that scores an element given a set, and its training objective (Deep Sets, section 4.2, appendix E)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..nn import mlp, pooling
from ..sets import Sets
from ..train import Batch, seeded


class EncodedQueries(NamedTuple):
    """Queries, ready to be combined with candidates."""

    pooled: Tensor | None  # (Q, latent) where the candidate is pooled by max
    shift: Tensor  # (Q, H) what the query adds to the first layer of ρ

    def select(self, place: Any) -> EncodedQueries:
        """Index all queries, as in `tensor[place]`."""
        return EncodedQueries(None if self.pooled is None else self.pooled[place], self.shift[place])


class FeatureScaler(nn.Module):
    """Standardise features, (n, D) -> (n, D)."""

    mean: Tensor
    scale: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))

    def fit(self, x: Tensor) -> None:
        """Set the mean and the standard deviation of each column; a constant column is only centred."""
        deviation = x.std(0, correction=0)
        self.mean.copy_(x.mean(0))
        self.scale.copy_(torch.where(deviation > 1e-6 * self.mean.abs(), deviation, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Standardise rows."""
        return (x - self.mean) / self.scale


class ScoreNetwork(nn.Module):
    r"""Score network: :math:`s(x|X) = ρ(\mathrm{pool}(φ(x_1), …, φ(x_n), φ(x)))`; settings as for `SetExpander`.

    φ is an embedding and/or features of the element, followed by linear layers with ReLU; ρ is such layers with one
    output. A vector z of the set enters ρ by a linear map of its own.

    The first layer of ρ commutes with the sum, :math:`W(Σφ + φ(x)) = WΣφ + Wφ(x)`. So `keys` holds :math:`Wφ(x)` for
    all candidates, `encode_queries` the rest of the first layer, and `score` combines them. Where the candidate is
    pooled by max, keys are φ(x), and W follows the pooling.
    """

    def __init__(
        self,
        vocabulary: int,
        embedding: int,
        features: int,
        context: int,
        *,
        phi: tuple[int, ...],
        rho: tuple[int, ...],
        pool: str,
        concat: bool,
        dropout: float = 0.0,
        embedding_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding_dropout = embedding_dropout
        self.embedding = nn.Embedding(vocabulary, embedding) if embedding else None
        self.features = FeatureScaler(features) if features else None
        self.phi = nn.Sequential(*mlp(embedding + features, *phi, dropout=dropout), nn.ReLU(inplace=True))
        self.pool = pooling(pool)
        self.first = nn.Linear(phi[-1], rho[0])
        self.first_pooled = nn.Linear(phi[-1], rho[0], bias=False) if concat else None
        self.context = (
            nn.Sequential(FeatureScaler(context), nn.Linear(context, rho[0], bias=False)) if context else None
        )
        drop = [nn.Dropout(dropout)] if dropout else []
        self.rest = nn.Sequential(nn.ReLU(inplace=True), *drop, *mlp(*rho, 1, dropout=dropout))
        self.late = pool == "max" and not concat  # the candidate goes through the pooling, before any map

    def encode_elements(self, ids: Tensor | None, rows: Tensor | None) -> Tensor:
        """Compute φ(x), (n, latent), for elements of the vocabulary with their features, or for new rows."""
        parts = []
        if self.embedding is not None and ids is not None:
            known = self.embedding(ids)
            if self.training and self.embedding_dropout:
                known = known * (torch.rand(len(ids), 1) >= self.embedding_dropout)
            parts.append(known)
        elif self.embedding is not None and rows is not None:
            parts.append(rows.new_zeros(len(rows), self.embedding.embedding_dim))
        if self.features is not None:
            parts.append(self.features(rows))
        return self.phi(torch.cat(parts, -1) if len(parts) > 1 else parts[0])

    def keys(self, phi: Tensor) -> Tensor:
        """Precompute candidates: (n, latent) -> (n, H)."""
        return phi if self.late else phi @ self.first.weight.T

    def encode_queries(self, phi: Sets, z: Tensor | None) -> EncodedQueries:
        """Pool queries, given as sets of φ(x_m), with z (Q, Z) or None."""
        pooled = self.pool(phi)
        shift = self.first.bias.expand(len(phi), -1)
        if self.context is not None:
            shift = shift + self.context(z)
        if self.late:
            return EncodedQueries(pooled, shift)
        weight = (self.first if self.first_pooled is None else self.first_pooled).weight
        return EncodedQueries(None, shift + pooled @ weight.T)

    def score(self, queries: EncodedQueries, keys: Tensor) -> Tensor:
        """Score keys for queries; the two broadcast against each other."""
        if queries.pooled is None:
            return self.rest(queries.shift + keys).squeeze(-1)
        return self.rest(torch.maximum(queries.pooled, keys) @ self.first.weight.T + queries.shift).squeeze(-1)


class TrainingPairs(NamedTuple):
    """Queries with members to be found and negatives."""

    queries: Sets  # of ids
    positives: Tensor  # (P,) ids of members that are not in the query
    owner: Tensor  # (P,) the set each belongs to
    negatives: Tensor  # (N,) ids, the same for all sets
    clash: Tensor  # (B, N) where a negative is a member of the set


def draw_pairs(sets: Sets, vocabulary: int, query: tuple[int, int], positives: int, negatives: int) -> TrainingPairs:
    """Draw from each set a random query and up to `positives` of its other members.

    Sets that leave no member to be found are skipped.
    """
    sets = sets[sets.sizes >= least_size(query)]
    sizes, owner = sets.sizes, sets.set_ids
    order = (owner + torch.rand(sets.total, dtype=torch.float64)).argsort()  # members of each set, shuffled
    members = sets.values[order]
    low, high = query
    taken = (low + (torch.rand(len(sets)) * (high - low + 1)).long()).minimum(sizes - 1)
    place = torch.arange(sets.total) - sets.offsets[:-1][owner]
    in_query = place < taken[owner]
    wanted = ~in_query & (place < (taken + positives)[owner])
    others = torch.randint(vocabulary, (negatives,)) if negatives < vocabulary else torch.arange(vocabulary)
    code = torch.arange(len(sets))[:, None] * vocabulary + others
    clash = torch.isin(code, owner * vocabulary + members)
    offsets = torch.cat([taken.new_zeros(1), taken.cumsum(0)])
    return TrainingPairs(Sets(members[in_query], offsets), members[wanted], owner[wanted], others, clash)


def least_size(query: tuple[int, int]) -> int:
    """Return the size of the smallest set that has a member to be found beside a query."""
    return 1 if query[0] == 0 else 2


class ExpansionObjective:
    """Loss of a batch for `deepsets.train.train`, with `rows` of features (V, D) or None; see `SetExpander`."""

    def __init__(
        self,
        rows: Tensor | None,
        vocabulary: int,
        *,
        loss: str,
        margin: float,
        query: tuple[int, int],
        positives: int,
        negatives: int,
    ) -> None:
        self.rows, self.vocabulary, self.loss, self.margin, self.query = rows, vocabulary, loss, margin, query
        self.positives, self.negatives = positives, negatives

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, float]:
        """Return the sum of losses in training, else of log ranks, and their number."""
        assert isinstance(model, ScoreNetwork)
        if model.training:
            pairs = draw_pairs(batch.sets, self.vocabulary, self.query, self.positives, self.negatives)
            positive, negative = self.scores(model, pairs, batch)
            losses = self._losses(positive, negative[pairs.owner], pairs.clash[pairs.owner])
        else:
            with seeded(0):  # the same pairs after every epoch
                pairs = draw_pairs(batch.sets, self.vocabulary, self.query, self.positives, 4 * self.negatives)
            positive, negative = self.scores(model, pairs, batch)
            losses = self._log_ranks(positive, negative[pairs.owner], pairs.clash[pairs.owner])
        return losses.sum(), float(len(losses))

    def scores(self, model: ScoreNetwork, pairs: TrainingPairs, batch: Batch) -> tuple[Tensor, Tensor]:
        """Score the positives, (P,), and all negatives for every set, (B, N)."""
        ids = torch.cat([pairs.queries.values, pairs.positives, pairs.negatives])
        phi = model.encode_elements(ids, None if self.rows is None else self.rows[ids])
        query, positive, negative = phi.split([pairs.queries.total, len(pairs.positives), len(pairs.negatives)])
        z = None if batch.z is None else batch.z[batch.sets.sizes >= least_size(self.query)]
        queries = model.encode_queries(pairs.queries.with_values(query), z)
        every = queries.select((slice(None), None))
        return model.score(queries.select(pairs.owner), model.keys(positive)), model.score(
            every, model.keys(negative)[None]
        )

    def _losses(self, positive: Tensor, negative: Tensor, clash: Tensor) -> Tensor:
        if self.loss == "margin":
            return F.relu(negative - positive[:, None] + self.margin).masked_fill(clash, 0).mean(1)
        negative = negative.masked_fill(clash, -torch.inf)
        return torch.logaddexp(positive, negative.logsumexp(1)) - positive

    def _log_ranks(self, positive: Tensor, negative: Tensor, clash: Tensor) -> Tensor:
        """Estimate the logarithm of the rank of a positive in the whole vocabulary."""
        above = ((negative >= positive[:, None]) & ~clash).double().mean(1)
        return (1 + above * self.vocabulary).log()
