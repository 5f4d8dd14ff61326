"""Adding what belongs to a set to each of its members."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..sets import Sets
from ._segment import block_rows, segment_sum


def add_spread_(values: Tensor, per_set: Tensor, sets: Sets) -> Tensor:
    """(N, D), (B, D) -> (N, D): `values + sets.spread(per_set)`, in place and without storing the spread.

    For values that nobody else holds, such as the output of a linear map.
    """
    if torch.compiler.is_compiling() or values.dtype != per_set.dtype:
        return values + sets.spread(per_set)
    return _AddSpread.apply(values, per_set, sets)


class _AddSpread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, per_set: Tensor, sets: Sets) -> Tensor:
        ctx.sets = sets
        ids = sets.set_ids
        for block in block_rows(values):
            values[block] += per_set.index_select(0, ids[block])
        ctx.mark_dirty(values)
        return values

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        return grad, segment_sum(grad, ctx.sets), None
