"""The networks inside the estimators."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..nn import DeepSet, Equivariant, SetLayer, SetSequential, mlp
from ..sets import Sets
from .preprocessing import Scale, Unscale


class _LinearPlus(nn.Module):
    """A linear map and a network beside it: what is linear need not be learnt the hard way."""

    def __init__(self, inputs: int, width: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.network = mlp(inputs, width, outputs, dropout=dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.network(x)


def set_network(
    inputs: int, z: int, outputs: int, *, width: int, depth: int, dropout: float, deep_rho: bool
) -> DeepSet:
    """A set to `outputs` numbers: a phi of `depth` layers, and max, mean, min and deviation over the members."""
    widths = [inputs + z, *[width] * depth]
    phi = nn.Sequential(*mlp(*widths, dropout=dropout), nn.ReLU(), nn.Dropout(dropout))
    pool = ["max", "mean", "min", "std"]
    pooled = len(pool) * width + 1 + z
    last = _LinearPlus(pooled, width, outputs, dropout) if deep_rho else nn.Linear(pooled, outputs)
    rho = nn.Sequential(nn.Dropout(dropout), last)
    return DeepSet(phi, rho, pool=pool, append_size=True, condition="both" if z else None)


class _Residual(SetLayer):
    """A residual block for small data: every member normalised by itself, ordinary dropout."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = Equivariant(width, width, pool=["mean", "max"])
        last = nn.Linear(width, width)
        with torch.no_grad():
            last.weight *= 0.5  # a block begins as a small change
        self.out = nn.Sequential(nn.GELU(), nn.Dropout(dropout), last)

    def forward(self, sets: Sets) -> Sets:
        inner = self.mix(sets.map(self.norm)).map(self.out)
        return sets.materialize().with_values(sets.materialize().values + inner.values)


class MemberNetwork(nn.Module):
    """A number (or several) for every member: residual equivariant blocks with mean and max of the set.

    noise: on the inputs, in training.
    """

    def __init__(
        self, inputs: int, z: int, outputs: int, *, width: int, depth: int, dropout: float, noise: float = 0.0
    ) -> None:
        super().__init__()
        self.noise = noise
        blocks = [_Residual(width, dropout) for _ in range(depth)]
        self.stack = SetSequential(
            nn.Linear(inputs + z, width), *blocks, nn.LayerNorm(width), nn.Linear(width, outputs)
        )

    def forward(self, sets: Sets, z: Tensor | None = None) -> Sets:
        if z is not None:
            sets = sets.materialize()
            sets = sets.with_values(torch.cat([sets.values, sets.broadcast(z)], dim=-1))
        if self.training and self.noise:
            sets = sets.map(lambda x: x + self.noise * torch.randn_like(x))
        return self.stack(sets)


class Network(nn.Module):
    """Scaling or embedding of the members, then several networks from other starts.

    sets: values (N, in), or ids (N,) with `vocabulary`. Gives the answers of all networks, (networks, B or N, out).
    """

    def __init__(
        self,
        make: Callable[[int, int, int], nn.Module],
        *,
        features: int,
        vocabulary: int,
        embedding: int,
        z: int,
        outputs: int,
        networks: int,
        missing: bool,
    ) -> None:
        super().__init__()
        self.scale = None if vocabulary else Scale(features, missing=missing)
        self.embed = nn.Embedding(vocabulary, embedding) if vocabulary else None
        self.scale_z = Scale(z) if z else None
        self.unscale = Unscale(outputs)
        inputs = embedding if self.scale is None else self.scale.out_features
        context = 0 if self.scale_z is None else self.scale_z.out_features
        self.networks = nn.ModuleList(make(inputs, context, outputs) for _ in range(networks))

    def prepare(self, sets: Sets, z: Tensor | None) -> tuple[Sets, Tensor | None]:
        """What the networks see of members and z; nothing here is trained, so training does it once."""
        members = sets if self.scale is None else sets.map(self.scale)
        return members, None if z is None or self.scale_z is None else self.scale_z(z)

    def answers(self, members: Sets, z: Tensor | None = None) -> Tensor:
        """The answers of all networks for prepared members."""
        members = members if self.embed is None else members.map(self.embed)
        each = [network(members, z) for network in self.networks]
        return torch.stack([a.values if isinstance(a, Sets) else a for a in each])

    def forward(self, sets: Sets, z: Tensor | None = None) -> Tensor:
        return self.answers(*self.prepare(sets, z))
