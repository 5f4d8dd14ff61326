"""Adding what belongs to a set to each of its members, and the activation after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ..sets import Sets
from .blocks import are_large, row_blocks, whole_sets
from .segment import segment_sum

Activation = Literal["tanh", "relu", "elu"]

_FORWARD: dict[str | None, Callable[[Tensor], Tensor]] = {
    None: lambda x: x,
    "tanh": torch.tanh_,
    "relu": torch.relu_,
    "elu": F.elu_,
}


def _backward(activation: str | None, grad: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """The gradient before the activation, from the one after it and the output; into `out`."""
    if activation == "tanh":
        return torch.ops.aten.tanh_backward.grad_input(grad, y, grad_input=out)
    if activation == "relu":
        return torch.ops.aten.threshold_backward.grad_input(grad, y, 0, grad_input=out)
    return torch.ops.aten.elu_backward.grad_input(grad, 1, 1, 1, True, y, grad_input=out)


def add_spread_(values: Tensor, per_set: Tensor, sets: Sets, activation: Activation | None = None) -> Tensor:
    """(N, D), (B, D) -> (N, D): `activation(values + sets.broadcast(per_set))`, in place, without storing the spread.

    For values that nobody else holds, such as the output of a linear map.
    """
    if torch.compiler.is_compiling() or values.dtype != per_set.dtype:
        return _FORWARD[activation](values + sets.broadcast(per_set))
    return _AddSpread.apply(values, per_set, sets.layout(), activation)


class _AddSpread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, per_set: Tensor, sets: Sets, activation: Activation | None) -> Tensor:
        act = _FORWARD[activation]
        if are_large(values, sets):
            for rows, b in whole_sets(sets):
                act(values[rows].add_(per_set[b]))
        else:
            for rows, ids in row_blocks(values, sets):
                act(values[rows].add_(per_set.index_select(0, ids)))
        ctx.mark_dirty(values)
        ctx.sets, ctx.activation = sets, activation
        if activation is not None:
            ctx.save_for_backward(values)
        return values

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        if ctx.activation is None:
            return grad, segment_sum(grad, ctx.sets), None, None
        (y,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted: the same in differentiable form
            slope = {"tanh": 1 - y * y, "relu": (y > 0).to(y.dtype), "elu": torch.where(y > 0, 1, y + 1)}
            grad = grad * slope[ctx.activation]
            return grad, segment_sum(grad, ctx.sets), None, None
        before = torch.empty_like(y)
        if not are_large(y, ctx.sets):
            _backward(ctx.activation, grad, y, before)
            return before, segment_sum(before, ctx.sets), None, None
        per_set = y.new_zeros(len(ctx.sets), y.shape[1])
        for rows, b in whole_sets(ctx.sets):  # the sum over a set while its rows are in cache
            torch.sum(_backward(ctx.activation, grad[rows], y[rows], before[rows]), 0, out=per_set[b])
        return before, per_set, None, None
