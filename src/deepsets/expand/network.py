"""The network that scores an element in the light of a set (Deep Sets, section 4.2 and appendix E)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..nn import mlp, pooling
from ..sets import Sets


class Asked(NamedTuple):
    """Queries, ready to meet candidates. pooled: (Q, latent), where the candidate is pooled by max. shift: (Q, H)."""

    pooled: Tensor | None
    shift: Tensor

    def at(self, place: Any) -> Asked:
        """Some of the queries, or with other axes, as in `tensor[place]`."""
        return Asked(None if self.pooled is None else self.pooled[place], self.shift[place])


class Standard(nn.Module):
    """Features in units of their deviation, (n, D) -> (n, D)."""

    mean: Tensor
    scale: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))

    def learn(self, x: Tensor) -> None:
        """Takes mean and deviation of each column; a constant column is only centred."""
        deviation = x.std(0, correction=0)
        self.mean.copy_(x.mean(0))
        self.scale.copy_(torch.where(deviation > 1e-6 * self.mean.abs(), deviation, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale


class ScoreNetwork(nn.Module):
    r"""$s(x|X) = ρ(\mathrm{pool}(φ(x_1), …, φ(x_n), φ(x)))$, or with `concat`  $ρ([\mathrm{pool}\,φ(x_m);\ φ(x)])$.

    φ is an embedding and/or features of the element through linear maps with ReLU; ρ is such maps to one number. A
    vector z of the set goes into ρ by a linear map of its own.

    The first map of ρ comes first, on its own: it commutes with the sum, $W(Σφ + φ(x)) = WΣφ + Wφ(x)$, so `keys`
    holds $Wφ(x)$ for all candidates, `ask` holds the rest of the first layer for a query, and `meet` takes it from
    there. Where the candidate is pooled by max, keys are φ(x), and W waits for both.
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
        forget: float = 0.0,
    ) -> None:
        super().__init__()
        self.forget = forget
        self.embedding = nn.Embedding(vocabulary, embedding) if embedding else None
        self.features = Standard(features) if features else None
        self.phi = nn.Sequential(*mlp(embedding + features, *phi, dropout=dropout), nn.ReLU(inplace=True))
        self.pool = pooling(pool)
        self.first = nn.Linear(phi[-1], rho[0])
        self.first_pooled = nn.Linear(phi[-1], rho[0], bias=False) if concat else None
        self.context = nn.Sequential(Standard(context), nn.Linear(context, rho[0], bias=False)) if context else None
        drop = [nn.Dropout(dropout)] if dropout else []
        self.rest = nn.Sequential(nn.ReLU(inplace=True), *drop, *mlp(*rho, 1, dropout=dropout))
        self.late = pool == "max" and not concat  # the candidate goes through the pooling, before any map

    def elements(self, ids: Tensor | None, rows: Tensor | None) -> Tensor:
        """φ(x), (n, latent), of elements of the vocabulary (with their features), or of rows that are new."""
        parts = []
        if self.embedding is not None and ids is not None:
            known = self.embedding(ids)
            if self.training and self.forget:
                known = known * (torch.rand(len(ids), 1) >= self.forget)
            parts.append(known)
        elif self.embedding is not None and rows is not None:
            parts.append(rows.new_zeros(len(rows), self.embedding.embedding_dim))
        if self.features is not None:
            parts.append(self.features(rows))
        return self.phi(torch.cat(parts, -1) if len(parts) > 1 else parts[0])

    def keys(self, phi: Tensor) -> Tensor:
        """What is kept of a candidate: (n, H)."""
        return phi if self.late else phi @ self.first.weight.T

    def ask(self, phi: Sets, z: Tensor | None) -> Asked:
        """Queries as sets of φ(x_m), z (Q, Z) or None."""
        pooled = self.pool(phi)
        shift = self.first.bias.expand(len(phi), -1)
        if self.context is not None:
            shift = shift + self.context(z)
        if self.late:
            return Asked(pooled, shift)
        weight = (self.first if self.first_pooled is None else self.first_pooled).weight
        return Asked(None, shift + pooled @ weight.T)

    def meet(self, asked: Asked, keys: Tensor) -> Tensor:
        """Queries and keys that broadcast against each other, to scores."""
        if asked.pooled is None:
            return self.rest(asked.shift + keys).squeeze(-1)
        return self.rest(torch.maximum(asked.pooled, keys) @ self.first.weight.T + asked.shift).squeeze(-1)
