"""Networks inside the estimators."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..nn import Equivariant, Pooling, SetLayer, SetSequential, pooling
from ..nn.pooling import Parts
from ..sets import Sets
from .scale import Unscale

DEFAULT_POOL = ("max", "mean", "min", "std")
_CHANNELWISE = {"sum", "mean", "max", "min", "std", "sqrt", "logsumexp"}
_EMBEDDING = 32


class GroupedLinear(nn.Module):
    """K linear maps side by side, (K, n, in) to (K, n, out), each initialised as ``nn.Linear``."""

    def __init__(self, groups: int, in_features: int, out_features: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(max(1, in_features))
        self.weight = nn.Parameter(torch.empty(groups, in_features, out_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(groups, 1, out_features).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """(K, n, in) to (K, n, out)."""
        return torch.baddbmm(self.bias, x, self.weight)


class SetNetworks(nn.Module):
    """K Deep Sets networks in one module: one pass of large matrix products instead of K of small ones.

    `width`, `depth` and `dropout` are those of phi; `deep_rho` gives rho a hidden layer beside its linear map.
    `context` numbers per set are appended to the inputs of phi and rho. A share `drop_tokens` of the categories is
    read as unknown (code 0) in training, so that "unknown" is learned.
    Sets with values (N, features + columns of codes) to (K, B, outputs).
    """

    def __init__(
        self,
        features: int,
        vocabularies: list[int],
        context: int,
        outputs: int,
        *,
        networks: int,
        width: int,
        depth: int,
        dropout: float,
        deep_rho: bool,
        pool: Any = DEFAULT_POOL,
        drop_tokens: float = 0.05,
    ) -> None:
        super().__init__()
        self.features, self.networks, self.width, self.drop_tokens = features, networks, width, drop_tokens
        self.facts = {"width": width, "depth": depth, "dropout": dropout, "deep_rho": deep_rho, "networks": networks}
        inputs = features + context
        self.first = nn.Linear(inputs, networks * width) if inputs else None
        self.embed = nn.ModuleList(nn.Embedding(v + 1, networks * _EMBEDDING) for v in vocabularies)
        self.tokens = GroupedLinear(networks, len(vocabularies) * _EMBEDDING, width) if vocabularies else None
        self.layers = nn.ModuleList(GroupedLinear(networks, width, width) for _ in range(depth - 1))
        self.dropout = nn.Dropout(dropout)
        names = [pool] if isinstance(pool, str) else list(pool)
        self.channelwise = set(names) <= _CHANNELWISE
        each = 1 if self.channelwise else networks
        self.pool = nn.ModuleList(pooling(names, width) for _ in range(each))
        self.pooled = self.pool[0].out_features(width)  # type: ignore[operator]
        last = self.pooled + 1 + context
        self.linear = GroupedLinear(networks, last, outputs)
        self.hidden = nn.ModuleList(
            [GroupedLinear(networks, last, width), GroupedLinear(networks, width, outputs)] if deep_rho else []
        )

    def members(self, sets: Sets, context: Tensor | None) -> Sets:
        """Phi of each member: values (N, K * width)."""
        x, codes = sets.values[:, : self.features], sets.values[:, self.features :].long()
        K, parts = self.networks, []
        if self.first is not None:
            parts.append(self.first(x if context is None else torch.cat([x, sets.broadcast(context)], dim=1)))
        if self.tokens is not None:
            if self.training and self.drop_tokens:
                codes = codes * (torch.rand(codes.shape, device=codes.device) >= self.drop_tokens)
            found = [embed(codes[:, j]).view(codes.shape[0], K, _EMBEDDING) for j, embed in enumerate(self.embed)]
            mixed = self.tokens(torch.cat(found, dim=2).transpose(0, 1))
            parts.append(mixed.transpose(0, 1).reshape(codes.shape[0], K * self.width))
        h = self.dropout(torch.relu(sum(parts[1:], parts[0])))
        for layer in self.layers:
            # Stacked and joined, not reshaped: an exported program then needs no guard for a single member.
            grouped = layer(torch.stack(h.split(self.width, dim=1)))
            h = torch.cat(self.dropout(torch.relu(grouped)).unbind(0), dim=1)
        return sets.with_values(h)

    def pooled_sets(self, members: Sets) -> list[Sets]:
        """Members as each of `pool` takes them: all networks at once, or one by one for poolings with weights."""
        if self.channelwise:
            return [members]
        return [members.with_values(v.contiguous()) for v in members.values.split(self.width, dim=1)]

    def pool_state(self, members: Sets) -> Parts:
        """State of the poolings; ValueError where one has none."""
        pairs = enumerate(zip(self.pool, self.pooled_sets(members), strict=True))
        return {f"{k}:{n}": part for k, (pool, each) in pairs for n, part in pool.state(each).items()}  # type: ignore[operator]

    def pool_apply(self, method: str, *states: Parts) -> Any:
        """`merge`, `remove` or `finish` of the poolings, one by one."""
        found = []
        for k, pool in enumerate(self.pool):
            own = [{n.split(":", 1)[1]: p for n, p in state.items() if n.startswith(f"{k}:")} for state in states]
            found.append(getattr(pool, method)(*own))
        if method == "finish":
            return torch.cat(found, dim=1)
        return {f"{k}:{name}": part for k, parts in enumerate(found) for name, part in parts.items()}

    @property
    def mergeable(self) -> bool:
        """Whether states of parts of a set give the state of the whole."""
        each = (p for pool in self.pool for p in getattr(pool, "poolings", [pool]))
        return all(type(p).merge is not Pooling.merge for p in each)

    def double_pooling(self) -> SetNetworks:
        """The same networks, with poolings that work in float64."""
        if any(p.dtype != torch.float64 for p in self.pool.parameters()):
            self.pool.double()
        return self

    def pool_members(self, members: Sets) -> Tensor:
        """Pooled vectors of all networks, (B, K * pooled), as `pool_apply("finish")` gives them."""
        return torch.cat([pool(m) for pool, m in zip(self.pool, self.pooled_sets(members), strict=True)], dim=1)

    def answer(self, pooled: Tensor, counts: Tensor, context: Tensor | None) -> Tensor:
        """Rho: (B, K * pooled), (B,) and (B, context) to (K, B, outputs)."""
        B, K = pooled.shape[0], self.networks
        if self.channelwise:
            pooled = (
                pooled.view(B, self.pooled // self.width, K, self.width).permute(2, 0, 1, 3).reshape(K, B, self.pooled)
            )
        else:
            pooled = pooled.view(B, K, self.pooled).transpose(0, 1)
        extra = [counts.to(pooled.dtype).log1p()[:, None]] + ([] if context is None else [context.to(pooled.dtype)])
        x = torch.cat([pooled, torch.cat(extra, dim=1).expand(K, -1, -1)], dim=2)
        x = self.dropout(x)
        out = self.linear(x)
        if len(self.hidden):
            out = out + self.hidden[1](self.dropout(torch.relu(self.hidden[0](x))))
        return out

    def forward(self, sets: Sets, context: Tensor | None = None) -> Tensor:
        """(K, B, outputs)."""
        members = self.members(sets, context)
        return self.answer(self.pool_members(members), members.counts, context)


class _Residual(SetLayer):
    """Residual equivariant block for small data: every member normalised by itself, ordinary dropout."""

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


class _MemberNetwork(nn.Module):
    """Residual equivariant blocks with mean and max of the set; Sets (N, inputs + z) to Sets (N, outputs)."""

    def __init__(self, inputs: int, z: int, outputs: int, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        blocks = [_Residual(width, dropout) for _ in range(depth)]
        self.stack = SetSequential(
            nn.Linear(inputs + z, width), *blocks, nn.LayerNorm(width), nn.Linear(width, outputs)
        )

    def forward(self, sets: Sets) -> Sets:
        return self.stack(sets)


class MemberNetworks(nn.Module):
    """Embedding of the categories, then several networks with different initialisations.

    `noise` is added to the inputs in training.
    Sets with values (N, features + columns of codes) to (networks, N, outputs).
    """

    def __init__(
        self,
        features: int,
        vocabularies: list[int],
        context: int,
        outputs: int,
        *,
        networks: int,
        width: int,
        depth: int,
        dropout: float,
        noise: float,
        drop_tokens: float = 0.05,
    ) -> None:
        super().__init__()
        self.features, self.noise, self.drop_tokens = features, noise, drop_tokens
        size = width if len(vocabularies) == 1 and features == 0 else min(width, _EMBEDDING)
        self.embed = nn.ModuleList(nn.Embedding(v + 1, size) for v in vocabularies)
        self.unscale = Unscale(outputs)
        inputs = features + size * len(vocabularies)
        each = (_MemberNetwork(inputs, context, outputs, width, depth, dropout) for _ in range(networks))
        self.networks = nn.ModuleList(each)

    def forward(self, sets: Sets, z: Tensor | None = None) -> Tensor:
        """(networks, N, outputs)."""
        sets = sets.materialize()
        x, codes = sets.values[:, : self.features], sets.values[:, self.features :].long()
        if self.training and self.drop_tokens and len(self.embed):
            codes = codes * (torch.rand(codes.shape, device=codes.device) >= self.drop_tokens)
        found = [x, *(embed(codes[:, j]) for j, embed in enumerate(self.embed))]
        found += [] if z is None else [sets.broadcast(z)]
        values = torch.cat(found, dim=1) if len(found) > 1 else x
        answers = []
        for network in self.networks:
            noise = self.noise * torch.randn_like(values) if self.training and self.noise else 0
            answers.append(network(sets.with_values(values + noise)).values)
        return torch.stack(answers)
