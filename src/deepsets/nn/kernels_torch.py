"""Ragged reductions in plain torch operations: any device, any transform (export, vmap), and small batches.

They also serve as the oracle of the compiled kernels. Each is a handful of operations over the whole batch; there is
no loop over pieces, whose many parallel regions would wait for each other on a busy machine.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ..sets import Sets

Activation = Literal["tanh", "relu", "elu"]
_HALF = (torch.bfloat16, torch.float16)


def segment_sum(values: Tensor, sets: Sets, weights: Tensor | None = None) -> Tensor:
    """(U or N, D) -> (B, D): the (weighted) sum over the members of each set; 0 for an empty set."""
    rows = values if sets.element_ids is None else values.index_select(0, sets.element_ids)
    if rows.dtype in _HALF:
        return segment_sum(rows.float(), sets.materialize(), weights).to(rows.dtype)
    if weights is not None:
        rows = rows * weights.to(rows.dtype)[:, None]
    return rows.new_zeros(sets.offsets.shape[0] - 1, rows.shape[1]).index_add_(0, sets.set_ids, rows)


class SegmentSum(torch.autograd.Function):
    """The sum in eager mode on a few numbers: (N, D), offsets, set_ids -> (B, D)."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, offsets: Tensor, set_ids: Tensor | None) -> Tensor:
        """Add the members one after another, as :func:`segment_sum` does."""
        ctx.set_ids = set_ids
        return torch.segment_reduce(values, "sum", offsets=offsets, axis=0, unsafe=True)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """Give each member the gradient of its set; unlike that of segment_reduce, it can be differentiated."""
        return grad.index_select(0, ctx.set_ids), None, None


def segment_extremum(values: Tensor, sets: Sets, reduce: str) -> Tensor:
    """(N, D) -> (B, D): amax or amin of each channel; members that tie share the gradient."""
    # torch counts the start among the ties even with include_self=False, so it must equal no value.
    start = values.new_full((sets.shape[0], values.shape[1]), torch.nan)
    best = start.scatter_reduce(0, sets.set_ids[:, None].expand_as(values), values, reduce, include_self=False)
    return torch.where((sets.sizes > 0)[:, None], best, 0)


def segment_moments(values: Tensor, sets: Sets, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """(N, D) -> (B, D), (B, D): weighted means, and weighted sums of squared deviations from them."""
    counts = sets.sizes if weights is None else sets.counts
    mean = segment_sum(values, sets, weights) / at_least(counts)[:, None]
    return mean, segment_sum((values - sets.broadcast(mean)).square(), sets, weights)


def deviation(squares: Tensor, counts: Tensor) -> Tensor:
    """Standard deviations from sums of squared deviations: (B, D), (B,) -> (B, D)."""
    variance = squares / at_least(counts)[:, None]
    positive = variance > 0  # the slope of the root at 0 is infinite: equal members get gradient 0 instead
    return torch.where(positive, torch.where(positive, variance, 1).sqrt(), 0)


def at_least(counts: Tensor) -> Tensor:
    """The counts, with 1 in place of 0, to divide by."""
    return torch.where(counts > 0, counts, 1)


def segment_peak(values: Tensor, sets: Sets, weights: Tensor | None) -> Tensor:
    """(N, D) -> (B, D): the largest value among members with a positive weight, without gradient; 0 for none."""
    values = values.detach()
    if weights is None:
        return segment_extremum(values, sets, "amax")
    present = weights > 0
    some = torch.zeros(sets.shape[0], dtype=torch.long, device=values.device)
    some = some.index_add(0, sets.set_ids, present.long())
    peak = segment_extremum(torch.where(present[:, None], values, -torch.inf), sets, "amax")
    return torch.where((some > 0)[:, None], peak, 0)


def segment_exp_sum(values: Tensor, sets: Sets, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """(N, D) -> (B, D), (B, D): the peak of each set, and Σ w_i exp(x_i - peak)."""
    peak = segment_peak(values, sets, weights)
    relative = values - sets.broadcast(peak)
    if weights is not None:
        relative = relative.clamp(max=0)  # a member of weight 0 may lie above the peak: 0 · inf is not 0
    return peak, segment_sum(relative.exp(), sets, weights)


def log_of_sum(peak: Tensor, total: Tensor) -> Tensor:
    """Logarithm of Σ w exp(x), from the result of :func:`segment_exp_sum`; 0 for an empty set."""
    some = total > 0
    return torch.where(some, peak + torch.where(some, total, 1).log(), 0)


def segment_softmax(
    scores: Tensor, values: Tensor, sets: Sets, weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores (N, H), values (N, V, D) -> peak (B, H), Σe (B, H), Σe·value / Σe (B, H, D), e = w exp(score - peak)."""
    peak = segment_peak(scores, sets, weights)
    relative = scores - sets.broadcast(peak)
    share = (relative if weights is None else relative.clamp(max=0)).exp()
    if weights is not None:
        share = share * weights.to(share.dtype)[:, None]
    total = segment_sum(share, sets)
    # One head after another: the products of all heads at once would be H times the size of the members.
    heads = [segment_sum(share[:, h, None] * values[:, h % values.shape[1]], sets) for h in range(share.shape[1])]
    return peak, total, torch.stack(heads, dim=1) / torch.where(total > 0, total, 1)[..., None]


def activate(values: Tensor, activation: Activation | None, *, inplace: bool = False) -> Tensor:
    """Apply an activation by name; None leaves the values as they are."""
    if activation == "tanh":
        return values.tanh_() if inplace else values.tanh()
    if activation == "relu":
        return F.relu(values, inplace=inplace)
    return values if activation is None else F.elu(values, inplace=inplace)


def activation_slope(result: Tensor, activation: Activation | None) -> Tensor:
    """The derivative of an activation, from its result."""
    if activation == "tanh":
        return 1 - result * result
    if activation == "relu":
        return (result > 0).to(result.dtype)
    return torch.ones_like(result) if activation is None else torch.where(result > 0, 1, result + 1)
