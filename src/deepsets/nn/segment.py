"""SumPooling, maximum and minimum over ragged sets: the kernels under every pooling, and where one is chosen.

Chosen by measurement on CPU (`make bench` repeats it; the table is in docs/speed.md):

- sum: `embedding_bag` forward, a gather backward. It adds the members of a set one after another in their order,
  whatever else is in the batch, so a set's sum does not change by a single bit when its neighbours do.
- max, min: `scatter_reduce` forward; backward, every member is compared with the winner of its set, in pieces that
  stay in cache. No argmax is stored.

Traced code (compile, export) takes the plain torch forms.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..sets import Sets
from .blocks import are_large, row_blocks, whole_sets


def segment_sum(values: Tensor, sets: Sets, weights: Tensor | None = None) -> Tensor:
    """(U or N, D) -> (B, D): the (weighted) sum over the members of each set; 0 for an empty set."""
    check_rows(values)
    if torch.compiler.is_compiling():
        rows = values if sets.element_ids is None else values.index_select(0, sets.element_ids)
        if weights is not None:
            rows = rows * weights.to(rows.dtype)[:, None]
        return rows.new_zeros(sets.shape[0], rows.shape[1]).index_add(0, sets.set_ids, rows)
    if weights is not None and (weights.requires_grad or values.dtype != weights.dtype):
        rows = values if sets.element_ids is None else values.index_select(0, sets.element_ids)
        return _Sum.apply(rows * weights.to(rows.dtype)[:, None], sets.layout().materialize(), None)
    return _Sum.apply(values, sets.layout(), weights)


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


def tapped_extremum(values: Tensor, sets: Sets, reduce: str) -> tuple[Tensor, Tensor]:
    """The values themselves, (N, D), and their extremum, (B, D), for a caller that maps the values by a matrix.

    Both gradients then meet in one place, and the winners' share is added into the one that came from the matrix
    product: nobody else holds it.
    """
    check_rows(values)
    return _TappedExtremum.apply(values, sets.layout(), reduce)


def segment_min(values: Tensor, sets: Sets) -> Tensor:
    """(N, D) -> (B, D): the smallest member of each channel; 0 for an empty set."""
    return _extremum(values, sets, "amin")


def _extremum(values: Tensor, sets: Sets, reduce: str) -> Tensor:
    check_rows(values)
    if torch.compiler.is_compiling():
        return _scatter(values, sets.set_ids, sets.shape[0], reduce)
    return _Extremum.apply(values, sets.layout(), reduce)


def _scatter(values: Tensor, ids: Tensor, count: int, reduce: str) -> Tensor:
    start = values.new_zeros(count, values.shape[1])
    return start.scatter_reduce(0, ids[:, None].expand_as(values), values, reduce, include_self=False)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, sets: Sets, weights: Tensor | None) -> Tensor:
        ctx.sets, ctx.rows, ctx.weights = sets, values.shape[0], weights
        index = torch.arange(sets.total, device=values.device) if sets.element_ids is None else sets.element_ids
        if not sets.total:
            return values.new_zeros(len(sets), values.shape[1])
        return F.embedding_bag(
            index, values, sets.offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
        )

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        rows = ctx.sets.broadcast(grad)
        if ctx.weights is not None:
            rows = rows * ctx.weights[:, None]
        if ctx.sets.element_ids is not None:
            rows = rows.new_zeros(ctx.rows, grad.shape[1]).index_add(0, ctx.sets.element_ids, rows)
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
        if torch.is_grad_enabled():
            return _differentiable_share(values, best, grad, ctx.sets), None, None
        return _share(values, best, grad, ctx.sets, None), None, None


class _TappedExtremum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, sets: Sets, reduce: str) -> tuple[Tensor, Tensor]:
        best = _scatter(values, sets.set_ids, sets.shape[0], reduce)
        ctx.save_for_backward(values, best)
        ctx.sets = sets
        return values.view_as(values), best

    @staticmethod
    def backward(ctx: Any, grad_values: Tensor, grad_best: Tensor) -> tuple[Tensor, None, None]:
        values, best = ctx.saved_tensors
        if torch.is_grad_enabled():
            return grad_values + _differentiable_share(values, best, grad_best, ctx.sets), None, None
        return _share(values, best, grad_best, ctx.sets, grad_values), None, None


def _differentiable_share(values: Tensor, best: Tensor, grad: Tensor, sets: Sets) -> Tensor:
    """As `_share`, for second derivatives."""
    ids = sets.set_ids
    wins = (values == best.index_select(0, ids)).to(grad.dtype)
    ties = torch.zeros_like(best).index_add(0, ids, wins).clamp(min=1)
    return wins * (grad / ties).index_select(0, ids)


def _share(values: Tensor, best: Tensor, grad: Tensor, sets: Sets, into: Tensor | None) -> Tensor:
    """The gradient of an extremum, (N, D): the winners of each channel share it. Added to `into`, if that is given.

    Comparing into floats is four times as fast as comparing into booleans and multiplying by them.
    """
    if not are_large(values, sets):
        share = _share_among_rows(values, best, grad, sets)
        return share if into is None else into.add_(share)
    out = torch.empty_like(values) if into is None else into
    for rows, b in whole_sets(sets):
        if into is None:
            wins = torch.eq(values[rows], best[b], out=out[rows])
            wins.mul_(grad[b] / wins.sum(0))
        else:
            wins = torch.eq(values[rows], best[b], out=torch.empty_like(values[rows]))
            out[rows].addcmul_(wins, grad[b] / wins.sum(0))
    return out


def _share_among_rows(values: Tensor, best: Tensor, grad: Tensor, sets: Sets) -> Tensor:
    """As `_share`, for small sets: pieces of rows of many sets; ties, which are rare, are looked after at the end."""
    out = torch.empty_like(values)
    winners = 0.0
    for rows, ids in row_blocks(values, sets):
        wins = torch.eq(values[rows], best.index_select(0, ids), out=out[rows])
        winners += float(wins.sum(dtype=torch.float32))
        wins.mul_(grad.index_select(0, ids))
    if winners > int((sets.sizes > 0).count_nonzero()) * values[:1].numel():
        ties = torch.zeros_like(best)
        for rows, ids in row_blocks(values, sets):
            wins = torch.eq(values[rows], best.index_select(0, ids), out=torch.empty_like(values[rows]))
            ties.index_add_(0, ids, wins)
        ties.clamp_(min=1)
        for rows, ids in row_blocks(values, sets):
            out[rows].div_(ties.index_select(0, ids))
    return out
