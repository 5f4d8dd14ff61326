"""Sum, maximum and minimum over ragged sets: the kernels under every pooling, and where one is chosen.

Measured on 2 CPU cores, forward + backward, 50,000 x 128 floats (`make bench` repeats it):

| kernel | sets of 300–500 | sets of 1–10 |
|---|---|---|
| sum: `embedding_bag` forward, gather backward (here) | 1 | 1 |
| max: `scatter_reduce` forward, blocked comparison backward (here) | 1 | 1 |

The sum adds the members of a set one after another in their order, whatever else is in the batch, so a set's sum
does not change by a single bit when its neighbours do. Traced code (compile, export) takes the plain torch forms.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..sets import Sets

_BLOCK_BYTES = 1 << 20  # temporaries of this size stay in cache and never reach the page-fault path of malloc


def segment_sum(values: Tensor, sets: Sets, weights: Tensor | None = None) -> Tensor:
    """(U or N, D) -> (B, D): the (weighted) sum over the members of each set; 0 for an empty set."""
    check_rows(values)
    if torch.compiler.is_compiling():
        rows = values if sets.index is None else values.index_select(0, sets.index)
        if weights is not None:
            rows = rows * weights.to(rows.dtype)[:, None]
        return rows.new_zeros(sets.shape[0], rows.shape[1]).index_add(0, sets.set_ids, rows)
    if weights is not None and (weights.requires_grad or values.dtype != weights.dtype):
        rows = values if sets.index is None else values.index_select(0, sets.index)
        return _Sum.apply(rows * weights.to(rows.dtype)[:, None], _flat(sets), None)
    return _Sum.apply(values, sets, weights)


def check_rows(values: Tensor) -> None:
    """Poolings read rows of floating-point features."""
    if not values.is_floating_point():
        raise ValueError(f"poolings take floating-point features, found {values.dtype}: embed ids first.")
    if values.ndim != 2:
        raise ValueError(
            f"poolings take members with one axis of features, values (N, D); found values of shape "
            f"{tuple(values.shape)}. Reshape them first, for example sets.map(lambda x: x.reshape(len(x), -1))."
        )


def segment_max(values: Tensor, sets: Sets) -> Tensor:
    """(N, D) -> (B, D): the largest member of each channel; 0 for an empty set. `values` stand in member order.

    Where several members share the maximum they share its gradient in equal parts, so the gradient does not depend
    on the order of the members either.
    """
    return _extremum(values, sets, "amax")


def segment_min(values: Tensor, sets: Sets) -> Tensor:
    """(N, D) -> (B, D): the smallest member of each channel; 0 for an empty set."""
    return _extremum(values, sets, "amin")


def _extremum(values: Tensor, sets: Sets, reduce: str) -> Tensor:
    check_rows(values)
    if torch.compiler.is_compiling():
        return _scatter(values, sets.set_ids, sets.shape[0], reduce)
    return _Extremum.apply(values, sets, reduce)


def _scatter(values: Tensor, ids: Tensor, count: int, reduce: str) -> Tensor:
    start = values.new_zeros(count, values.shape[1])
    return start.scatter_reduce(0, ids[:, None].expand_as(values), values, reduce, include_self=False)


def _flat(sets: Sets) -> Sets:
    """The same sets, for values that stand in member order already."""
    if sets.index is None:
        return sets
    new = Sets._trusted(sets.index, sets.offsets)
    new._set_ids = sets._set_ids
    return new


def block_rows(values: Tensor) -> list[slice]:
    """Slices of rows of about `_BLOCK_BYTES` each."""
    step = max(1, _BLOCK_BYTES // max(1, values.element_size() * values[:1].numel()))
    return [slice(start, start + step) for start in range(0, len(values), step)]


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, sets: Sets, weights: Tensor | None) -> Tensor:
        ctx.sets, ctx.rows, ctx.weights = sets, values.shape[0], weights
        index = torch.arange(sets.total, device=values.device) if sets.index is None else sets.index
        if not sets.total:
            return values.new_zeros(len(sets), values.shape[1])
        return F.embedding_bag(
            index, values, sets.offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
        )

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        rows = ctx.sets.spread(grad)
        if ctx.weights is not None:
            rows = rows * ctx.weights[:, None]
        if ctx.sets.index is not None:
            rows = rows.new_zeros(ctx.rows, grad.shape[1]).index_add(0, ctx.sets.index, rows)
        return rows, None, None


class _Extremum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, sets: Sets, reduce: str) -> Tensor:
        best = _scatter(values, sets.set_ids, sets.shape[0], reduce)
        ctx.save_for_backward(values, best)
        ctx.sets = sets
        return best

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        values, best = ctx.saved_tensors
        ids = ctx.sets.set_ids
        if torch.is_grad_enabled():  # a second derivative is wanted: the same in differentiable form
            wins = (values == best.index_select(0, ids)).to(grad.dtype)
            ties = torch.zeros_like(best).index_add(0, ids, wins).clamp(min=1)
            return wins * (grad / ties).index_select(0, ids), None, None
        return _winners_share(values, best, grad, ctx.sets), None, None


def _winners_share(values: Tensor, best: Tensor, grad: Tensor, sets: Sets) -> Tensor:
    """The gradient of an extremum, (N, D), block by block so that all temporaries stay in cache."""
    ids = sets.set_ids
    out = torch.empty_like(values)
    winners = 0.0
    for block in block_rows(values):
        # Comparing into floats is four times as fast as into booleans that are multiplied afterwards.
        wins = torch.eq(values[block], best.index_select(0, ids[block]), out=out[block])
        winners += float(wins.sum(dtype=torch.float32))
        wins.mul_(grad.index_select(0, ids[block]))
    if winners > int((sets.sizes > 0).count_nonzero()) * values[:1].numel():  # some members tie: count and share
        ties = torch.zeros_like(best)
        for block in block_rows(values):
            wins = (values[block] == best.index_select(0, ids[block])).to(ties.dtype)
            ties.index_add_(0, ids[block], wins)
        ties.clamp_(min=1)
        for block in block_rows(values):
            out[block].div_(ties.index_select(0, ids[block]))
    return out
