"""Attention among the members of a set: SAB and ISAB (Lee et al., 2019) on ragged batches."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..sets import Sets
from .attention_pooling import SeedAttentionPooling
from .sequential import SetLayer


def buckets(sets: Sets) -> Iterator[tuple[Tensor, Tensor]]:
    """Groups the sets by size, so that padding within a group at most doubles it.

    Yields (places, mask): the flat places of the members, (b, m), and which of them are real. Memory follows the
    number of elements, not the largest set; empty sets are left out.
    """
    if torch.compiler.is_exporting():
        raise ValueError(
            "attention among members cannot be exported: it groups the sets by size, and how many groups there are "
            "depends on the data. Equivariant, Block and the attention poolings can be exported."
        )
    sizes = sets.sizes
    classes = (sizes - 1).clamp(min=1).float().log2().floor().long()  # (2^c, 2^(c+1)], and 1..2
    for c in classes[sizes > 0].unique().tolist():
        rows = ((classes == c) & (sizes > 0)).nonzero().squeeze(1)
        span = torch.arange(int(sizes[rows].max()), device=sets.device)
        mask = span < sizes[rows, None]
        yield (sets.offsets[rows, None] + span).masked_fill(~mask, 0), mask


class _Attend(nn.Module):
    """Pre-norm multi-head attention and a feed-forward part, both residual."""

    def __init__(self, features: int, num_heads: int) -> None:
        super().__init__()
        if features % num_heads:
            raise ValueError(
                f"{features} features cannot be shared by {num_heads} heads: {features} % {num_heads} != 0."
            )
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(features)
        self.query = nn.Linear(features, features)
        self.key_value = nn.Linear(features, 2 * features)
        self.out = nn.Linear(features, features)
        self.forth = nn.Sequential(
            nn.LayerNorm(features), nn.Linear(features, 2 * features), nn.GELU(), nn.Linear(2 * features, features)
        )

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)  # (..., m, D) -> (..., heads, m, D / heads)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        seen = None if mask is None else mask[:, None, None]
        out = F.scaled_dot_product_attention(self._split(query), self._split(key), self._split(value), attn_mask=seen)
        return out.transpose(-3, -2).flatten(-2)


class SetAttention(SetLayer, _Attend):
    """Every member attends to all members of its set (SAB):  (N, D) -> (N, D).

    >>> SetAttention(8, num_heads=2)(Sets.from_list([torch.randn(5, 8), torch.randn(2, 8)])).values.shape
    torch.Size([7, 8])

    Costs n² a set in time. For large sets: `InducedSetAttention`, or a `Block`, which costs n.
    """

    def __init__(self, features: int, num_heads: int = 4) -> None:
        super().__init__(features, num_heads)

    def forward(self, sets: Sets) -> Sets:
        sets = sets.materialize()
        x = self.norm(sets.values)
        query, (key, value) = self.query(x), self.key_value(x).chunk(2, dim=-1)
        mixed = torch.zeros_like(query)
        for places, mask in buckets(sets):
            out = self.attend(query[places], key[places], value[places], mask)
            mixed = mixed.index_copy(0, places[mask], out[mask].to(mixed.dtype))
        h = sets.values + self.out(mixed)
        return sets.with_values(h + self.forth(h))


class InducedSetAttention(SetLayer, _Attend):
    """Members attend to k summaries of their set, which attended to the members (ISAB):  (N, D) -> (N, D).

    >>> InducedSetAttention(8, num_inducing_points=4, num_heads=2)(Sets.from_list([torch.randn(5, 8)])).values.shape
    torch.Size([5, 8])

    Costs n·k a set instead of n².
    """

    def __init__(self, features: int, num_inducing_points: int = 16, num_heads: int = 4) -> None:
        super().__init__(features, num_heads)
        self.num_inducing_points = num_inducing_points
        self.summary = SeedAttentionPooling(features, num_seeds=num_inducing_points, num_heads=num_heads)

    def forward(self, sets: Sets) -> Sets:
        sets = sets.materialize()
        summary = self.summary(sets).unflatten(-1, (self.num_inducing_points, -1))  # (B, k, D)
        key, value = self.key_value(summary).chunk(2, dim=-1)
        query = self.query(self.norm(sets.values))
        mixed = torch.zeros_like(query)
        ids = sets.set_ids
        for places, mask in buckets(sets):
            rows = ids[places[:, 0]]
            out = self.attend(query[places], key[rows], value[rows], None)
            mixed = mixed.index_copy(0, places[mask], out[mask].to(mixed.dtype))
        h = sets.values + self.out(mixed)
        return sets.with_values(h + self.forth(h))
