"""Differentiable operators of the compiled kernels for deviations, exponentials, attention and equivariant updates.

See :mod:`deepsets.nn.kernel_ops`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import kernels_torch as plain
from .kernel_ops import (
    Operator,
    _again,
    _array,
    _ids,
    _precision,
    _run,
    _sets,
    extremum_share,
    segment_extremum,
    segment_sum,
)

# --------------------------------------------------------------------------------------------------------- deviations


def _moments(values: Tensor, offsets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    from . import kernels_numba as loops

    dtype = _precision(values)
    mean = values.new_empty(offsets.shape[0] - 1, values.shape[1], dtype=dtype)
    squares = torch.empty_like(mean)
    arrays = _array(values, dtype), _ids(offsets), _array(weights, dtype), mean.numpy(), squares.numpy()
    _run(loops.segment_moments, offsets, values, *arrays)
    return mean.to(values.dtype), squares.to(values.dtype)


def _moments_share(
    grad_mean: Tensor, grad_squares: Tensor, values: Tensor, mean: Tensor, offsets: Tensor, weights: Tensor | None
) -> Tensor:
    from . import kernels_numba as loops

    dtype = _precision(values)
    out = torch.empty_like(values, dtype=dtype, memory_format=torch.contiguous_format)
    grads = _array(grad_mean, dtype), _array(grad_squares, dtype)
    arrays = _array(values, dtype), _array(mean, dtype), _ids(offsets), _array(weights, dtype), out.numpy()
    _run(loops.segment_moments_backward, offsets, values, *grads, *arrays)
    return out.to(values.dtype)


def _keep_moments(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(inputs[0], output[0], inputs[1], inputs[2])


def _moments_backward(ctx: Any, grad_mean: Tensor, grad_squares: Tensor) -> tuple[Any, ...]:
    values, mean, offsets, weights = ctx.saved_tensors
    if torch.is_grad_enabled() and type(values) is Tensor:
        sets = _sets(offsets, values)
        counts = sets.sizes.to(values.dtype) if weights is None else plain.segment_sum(weights[:, None], sets)[:, 0]
        form = lambda x: plain.segment_moments(x, sets, weights, counts.to(x.dtype))  # noqa: E731
        return _again(form, (values,), (grad_mean, grad_squares))[0], None, None
    return moments_backward(grad_mean, grad_squares, values, mean, offsets, weights), None, None


moments_backward = Operator(
    "segment_moments_backward",
    _moments_share,
    lambda grad_mean, grad_squares, values, mean, offsets, weights: torch.empty_like(values),
)
segment_moments = Operator(
    "segment_moments",
    _moments,
    lambda values, offsets, weights: tuple(values.new_empty(offsets.shape[0] - 1, values.shape[1]) for _ in range(2)),
    _keep_moments,
    _moments_backward,
)

# ------------------------------------------------------------------------------------------------------- exponentials


def _exp_sum(values: Tensor, offsets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    from . import kernels_exp as loops

    dtype = _precision(values)
    peak = values.new_empty(offsets.shape[0] - 1, values.shape[1], dtype=dtype)
    total = torch.empty_like(peak)
    arrays = _array(values, dtype), _ids(offsets), _array(weights, dtype), peak.numpy(), total.numpy()
    _run(loops.segment_exp_sum, offsets, values, *arrays)
    return peak.to(values.dtype), total.to(values.dtype)


def _exp_share(grad: Tensor, values: Tensor, peak: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
    from . import kernels_exp as loops

    dtype = _precision(values)
    out = torch.empty_like(values, dtype=dtype, memory_format=torch.contiguous_format)
    arrays = _array(grad, dtype), _array(values, dtype), _array(peak, dtype), _ids(offsets), _array(weights, dtype)
    _run(loops.segment_exp_sum_backward, offsets, values, *arrays, out.numpy())
    return out.to(values.dtype)


def _keep_exp_sum(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[0])
    ctx.save_for_backward(inputs[0], output[0], inputs[1], inputs[2])


def _exp_sum_backward(ctx: Any, _: Any, grad: Tensor) -> tuple[Any, ...]:
    values, peak, offsets, weights = ctx.saved_tensors
    if torch.is_grad_enabled() and type(values) is Tensor:
        form = lambda x: plain.segment_exp_sum(x, _sets(offsets, x), weights)[1]  # noqa: E731
        return _again(form, (values,), (grad,))[0], None, None
    return exp_sum_backward(grad, values, peak, offsets, weights), None, None


exp_sum_backward = Operator(
    "segment_exp_sum_backward",
    _exp_share,
    lambda grad, values, peak, offsets, weights: torch.empty_like(values),
)
segment_exp_sum = Operator(
    "segment_exp_sum",
    _exp_sum,
    lambda values, offsets, weights: tuple(values.new_empty(offsets.shape[0] - 1, values.shape[1]) for _ in range(2)),
    _keep_exp_sum,
    _exp_sum_backward,
)

# ---------------------------------------------------------------------------------------------------------- attention


def _softmax_sum(
    scores: Tensor, values: Tensor, offsets: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from . import kernels_exp as loops

    dtype = _precision(values)
    peak = values.new_empty(offsets.shape[0] - 1, scores.shape[1], dtype=dtype)
    total, shares = torch.empty_like(peak), values.new_empty(scores.shape, dtype=dtype)
    sums = values.new_empty(*peak.shape, values.shape[2], dtype=dtype)
    arrays = _array(scores, dtype), _array(values, dtype), _ids(offsets), _array(weights, dtype)
    outs = peak.numpy(), total.numpy(), sums.numpy(), shares.numpy()
    _run(loops.segment_softmax_sum, offsets, values, *arrays, *outs)
    return peak.to(values.dtype), total.to(values.dtype), sums.to(values.dtype), shares


def _softmax_share(
    grad_total: Tensor, grad_sums: Tensor, values: Tensor, shares: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor]:
    from . import kernels_exp as loops

    dtype = _precision(values)
    out = torch.empty_like(values, dtype=dtype, memory_format=torch.contiguous_format)
    scores = torch.empty_like(shares)
    grads = _array(grad_total, dtype), _array(grad_sums, dtype)
    arrays = _array(values, dtype), shares.numpy(), _ids(offsets), scores.numpy(), out.numpy()
    _run(loops.segment_softmax_sum_backward, offsets, values, *grads, *arrays)
    return scores.to(values.dtype), out.to(values.dtype)


def _keep_softmax(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    scores, values, offsets, weights = inputs
    ctx.mark_non_differentiable(output[0], output[3])
    ctx.save_for_backward(scores, values, offsets, weights, output[3])


def _softmax_backward(ctx: Any, _: Any, grad_total: Tensor, grad_sums: Tensor, __: Any) -> tuple[Any, ...]:
    scores, values, offsets, weights, shares = ctx.saved_tensors
    if torch.is_grad_enabled() and type(values) is Tensor:
        form = lambda s, v: plain.segment_softmax_sum(s, v, _sets(offsets, v), weights)[1:]  # noqa: E731
        return *_again(form, (scores, values), (grad_total, grad_sums)), None, None
    return *softmax_backward(grad_total, grad_sums, values, shares, offsets), None, None


softmax_backward = Operator(
    "segment_softmax_sum_backward",
    _softmax_share,
    lambda grad_total, grad_sums, values, shares, offsets: (
        values.new_empty(shares.shape), torch.empty_like(values)
    ),
)  # fmt: skip
segment_softmax_sum = Operator(
    "segment_softmax_sum",
    _softmax_sum,
    lambda scores, values, offsets, weights: (
        values.new_empty(offsets.shape[0] - 1, scores.shape[1]),
        values.new_empty(offsets.shape[0] - 1, scores.shape[1]),
        values.new_empty(offsets.shape[0] - 1, scores.shape[1], values.shape[2]),
        values.new_empty(scores.shape, dtype=_precision(values)),
    ),
    _keep_softmax,
    _softmax_backward,
)

# ------------------------------------------------------------------------- equivariant layers, in place, eager only


class ExtremumWithValues(torch.autograd.Function):
    """The values themselves and their extremum, so that both gradients meet in one array."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, offsets: Tensor, sign: int) -> tuple[Tensor, Tensor]:
        """Return a view of the values, and the extremum."""
        best, winners = segment_extremum.forward(values, offsets, sign)
        ctx.save_for_backward(values, best, winners, offsets)
        ctx.sign = sign
        return values.view_as(values), best

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None]:
        """Add the share of the winners to the gradient of the values."""
        values, best, winners, offsets = ctx.saved_tensors
        if torch.is_grad_enabled():
            name = "amax" if ctx.sign > 0 else "amin"
            form = lambda x: (x.view_as(x), plain.segment_extremum(x, _sets(offsets, x), name))  # noqa: E731
            return _again(form, (values,), grads)[0], None, None
        # The gradient of the values comes from a matrix product, and nobody else holds it.
        fits = grads[0].is_contiguous() and grads[0].dtype == _precision(values)
        share = extremum_share(grads[1], winners, values, best, offsets, into=grads[0] if fits else None)
        return share if fits else grads[0] + share, None, None


class AddBroadcast(torch.autograd.Function):
    """``activation(values + broadcast(per_set))``, in place."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, per_set: Tensor, offsets: Tensor, activation: plain.Activation | None
    ) -> Tensor:
        """Change the values in place."""
        from . import kernels_exp as loops

        single = values.dtype == torch.float32 or activation == "relu"  # in float64 torch has the faster tanh and exp
        code = loops.CODES[activation] if single else loops.CODES[None]
        context = per_set.detach().contiguous().numpy()
        _run(loops.add_broadcast, offsets, values, values.detach().numpy(), context, _ids(offsets), code)
        if not single:
            plain.activate(values, activation, inplace=True)
        ctx.mark_dirty(values)
        ctx.activation = activation
        ctx.save_for_backward(offsets, None if activation is None else values)
        return values

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Compute the gradients of the values, and their sums over each set."""
        from . import kernels_exp as loops

        offsets, result = ctx.saved_tensors
        if result is None or torch.is_grad_enabled():
            if result is not None:
                grad = grad * plain.activation_slope(result, ctx.activation)
            return grad, segment_sum(grad, offsets, None, None), None, None
        before = torch.empty_like(result)
        per_set = result.new_empty(offsets.shape[0] - 1, result.shape[1])
        arrays = grad.contiguous().numpy(), result.numpy(), _ids(offsets), loops.CODES[ctx.activation]
        _run(loops.add_broadcast_backward, offsets, result, *arrays, before.numpy(), per_set.numpy())
        return before, per_set, None, None
