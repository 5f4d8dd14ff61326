"""Residual blocks, for networks that are deep."""

from __future__ import annotations

from torch import nn

from ..sets import Sets
from .equivariant import Equivariant
from .norm import SetDropout, SetNorm
from .pooling import PoolSpec
from .sequential import SetLayer


class EquivariantBlock(SetLayer):
    r"""A pre-norm residual equivariant block:  $x + W\,σ(\mathrm{equivariant}(\mathrm{norm}(x)))$, (N, D) -> (N, D).

    >>> import torch
    >>> EquivariantBlock(32)(Sets.from_list([torch.randn(5, 32)])).values.shape
    torch.Size([5, 32])

    The path from input to output is a plain sum: nothing normalises it, so stacks of any depth train. The last map
    starts at 0, so a new block is the identity.
    """

    def __init__(self, width: int, pool: PoolSpec = ("max", "mean"), dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = SetNorm(width)
        self.mix = Equivariant(width, width, pool=pool)
        self.activation = nn.GELU()
        self.dropout = SetDropout(dropout)
        self.out = nn.Linear(width, width)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, sets: Sets) -> Sets:
        sets = sets.materialize()
        inner = self.dropout(self.mix(self.norm(sets)).map(self.activation))
        return sets.with_values(sets.values + self.out(inner.values))
