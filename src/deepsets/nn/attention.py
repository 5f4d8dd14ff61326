"""Attention among the members of a set: SAB and ISAB of the Set Transformer (Lee et al., 2019) on ragged batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..sets import Sets
from .attention_pooling import SeedAttentionPooling, check_heads
from .sequential import Factory, Linear, SetLayer


def _buckets(sets: Sets) -> Iterator[tuple[Tensor, Tensor]]:
    """Group the sets by size, so that padding within a group at most doubles it.

    Yields (places, mask): the flat places of the members, (b, m), and which of them are real. Memory follows the number
    of elements, not the largest set; empty sets are left out.
    """
    if torch.compiler.is_exporting():
        raise ValueError(
            "attention among members cannot be exported: it groups the sets by size, and the number of groups depends "
            "on the data. Equivariant, EquivariantBlock and the attention poolings can be exported."
        )
    sizes = sets.sizes
    classes = (sizes - 1).clamp(min=1).float().log2().floor().long()  # (2^c, 2^(c+1)], and 1..2
    for c in classes[sizes > 0].unique().tolist():
        rows = ((classes == c) & (sizes > 0)).nonzero().squeeze(1)
        span = torch.arange(int(sizes[rows].max()), device=sets.device)
        mask = span < sizes[rows, None]
        yield (sets.offsets[rows, None] + span).masked_fill(~mask, 0), mask


class _Attention(SetLayer):
    """Pre-norm multi-head attention and a feed-forward network, both residual."""

    def __init__(self, features: int, num_heads: int = 4, **factory: Unpack[Factory]) -> None:
        super().__init__()
        check_heads(features, num_heads)
        self.features, self.num_heads = features, num_heads
        self.norm = nn.LayerNorm(features, **factory)
        self.query = Linear(features, features, **factory)
        self.key_value = Linear(features, 2 * features, **factory)
        self.out = Linear(features, features, **factory)
        self.feedforward = nn.Sequential(
            nn.LayerNorm(features, **factory),
            Linear(features, 2 * features, **factory),
            nn.GELU(),
            Linear(2 * features, features, **factory),
        )

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)  # (..., m, D) -> (..., heads, m, D / heads)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Attend from (b, m, D) to (b, k, D), where the mask (b, k) is True; returns (b, m, D)."""
        seen = None if mask is None else mask[:, None, None]
        out = F.scaled_dot_product_attention(self._split(query), self._split(key), self._split(value), attn_mask=seen)
        return out.transpose(-3, -2).flatten(-2)

    def residual(self, sets: Sets, mixed: Tensor) -> Sets:
        """Add what was attended to, and the feed-forward network."""
        h = sets.values + self.out(mixed)
        return sets.with_values(h + self.feedforward(h))

    def extra_repr(self) -> str:
        """Describe the layer in its `repr`."""
        return f"features={self.features}, num_heads={self.num_heads}"


class SetAttention(_Attention):
    """Self-attention among the members of a set: SAB of the Set Transformer.

    Takes n² time per set of n members. For large sets use :class:`InducedSetAttention`, or an
    :class:`EquivariantBlock`, which takes n. Every member counts once, whatever its weight.

    Parameters
    ----------
    features : int
        Size of each member.
    num_heads : int, default=4
        Number of heads; a divisor of `features`.

    Shape
    -----
    Sets with values (N, features) -> Sets with values (N, features).

    Examples
    --------
    >>> SetAttention(8, num_heads=2)(Sets.from_list([torch.randn(5, 8), torch.randn(2, 8)])).values.shape
    torch.Size([7, 8])
    """

    def forward(self, sets: Sets) -> Sets:
        """Map sets with values (N, features) to sets with values (N, features)."""
        sets = sets.materialize()
        x = self.norm(sets.values)
        query, (key, value) = self.query(x), self.key_value(x).chunk(2, dim=-1)
        mixed = torch.zeros_like(query)
        for places, mask in _buckets(sets):
            out = self.attend(query[places], key[places], value[places], mask)
            mixed = mixed.index_copy(0, places[mask], out[mask].to(mixed.dtype))
        return self.residual(sets, mixed)


class InducedSetAttention(_Attention):
    """Attention through k learned summaries of each set: ISAB of the Set Transformer.

    The summaries attend to the members (:class:`SeedAttentionPooling`, which uses weights), and the members to the
    summaries: n·k time per set instead of n².

    Parameters
    ----------
    features : int
        Size of each member.
    num_inducing_points : int, default=16
        Number of summaries k.
    num_heads : int, default=4
        As for :class:`SetAttention`.

    Shape
    -----
    Sets with values (N, features) -> Sets with values (N, features).

    Examples
    --------
    >>> InducedSetAttention(8, num_inducing_points=4, num_heads=2)(Sets.from_list([torch.randn(5, 8)])).values.shape
    torch.Size([5, 8])
    """

    def __init__(
        self, features: int, num_inducing_points: int = 16, num_heads: int = 4, **factory: Unpack[Factory]
    ) -> None:
        super().__init__(features, num_heads, **factory)
        self.num_inducing_points = num_inducing_points
        self.summary = SeedAttentionPooling(features, num_inducing_points, num_heads, **factory)

    def forward(self, sets: Sets) -> Sets:
        """Map sets with values (N, features) to sets with values (N, features)."""
        sets = sets.materialize()
        summary = self.summary(sets).unflatten(-1, (self.num_inducing_points, -1))  # (B, k, D)
        key, value = self.key_value(summary).chunk(2, dim=-1)
        query = self.query(self.norm(sets.values))
        mixed = torch.zeros_like(query)
        ids = sets.set_ids
        for places, mask in _buckets(sets):
            rows = ids[places[:, 0]]
            out = self.attend(query[places], key[rows], value[rows], None)
            mixed = mixed.index_copy(0, places[mask], out[mask].to(mixed.dtype))
        return self.residual(sets, mixed)

    def extra_repr(self) -> str:
        """Describe the layer in its `repr`."""
        return f"{super().extra_repr()}, num_inducing_points={self.num_inducing_points}"
