"""The compiled loops as differentiable operators on CPU tensors.

Each operator exists twice, with the same forward and backward: as a `torch.library.custom_op` in the namespace
``deepsets``, which `torch.compile` and `torch.export` see as one node, and as an autograd function, whose call costs a
third of the former and which therefore runs in eager mode. Second derivatives are those of the plain torch form.
bfloat16 and float16 are computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..sets import Sets
from . import kernels_torch as plain
from .parallel import run, use_huge_pages

Outputs = list[tuple[tuple[int, ...], torch.dtype | None]]  # shapes, and dtypes where they are not those of the input
_REAL = {torch.float32: np.float32, torch.float64: np.float64}


def _precision(values: Tensor) -> torch.dtype:
    return torch.float64 if values.dtype == torch.float64 else torch.float32


def _ready(x: Any, dtype: torch.dtype) -> Any:
    """Contiguous, and in the precision of the loop."""
    return (x.to(dtype) if x.is_floating_point() else x).contiguous() if isinstance(x, Tensor) else x


class Operator:
    """A compiled loop with its gradient, called as a function.

    The schema has the name of the loop, its arguments (first a tensor that sets the dtype, then offsets) and results;
    `outputs` maps arguments to shapes and dtypes of the results; `keep` saves what `backward` needs; `shared`: whether
    sets write to the same rows.
    """

    def __init__(
        self,
        schema: str,
        outputs: Callable[..., Outputs],
        keep: Any = None,
        backward: Any = None,
        *,
        shared: bool = False,
    ) -> None:
        self.name, rest = schema.split("(", 1)
        self.outputs, self.shared = outputs, shared
        self.operator = torch.library.custom_op(
            f"deepsets::{self.name}", self.forward, mutates_args=(), schema=f"({rest}"
        )
        self.operator.register_fake(self._fake)
        self.apply: Any = self.forward
        if backward is not None:
            self.operator.register_autograd(backward, setup_context=keep)

            def forward(ctx: Any, *inputs: Any) -> Any:
                output = self.forward(*inputs)
                keep(ctx, inputs, output)
                return output

            methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
            function: Any = type(self.name, (torch.autograd.Function,), methods)
            self.apply = function.apply

    def forward(self, *inputs: Any) -> Any:
        """Run the loop, without autograd."""
        dtype = _precision(inputs[0])
        outs = [inputs[0].new_empty(shape, dtype=kind or dtype) for shape, kind in self.outputs(*inputs)]
        for out in outs:
            use_huge_pages(out)
        launch(self.name, dtype, *inputs, *outs, shared=self.shared)
        outs = [out.to(inputs[0].dtype) if out.is_floating_point() else out for out in outs]
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _fake(self, *inputs: Any) -> Any:
        outs = [inputs[0].new_empty(shape, dtype=kind) for shape, kind in self.outputs(*inputs)]
        return outs[0] if len(outs) == 1 else tuple(outs)

    def __call__(self, *inputs: Any) -> Any:
        """Run the operator: on ordinary tensors by the autograd function, on those of a tracer by the custom op."""
        eager = type(inputs[0]) in (Tensor, torch.nn.Parameter) and not torch.compiler.is_compiling()
        return (self.apply if eager else self.operator)(*inputs)


def launch(name: str, dtype: torch.dtype, values: Tensor, offsets: Tensor, *rest: Any, shared: bool = False) -> None:
    """Run a loop on tensors of any dtype and layout."""
    from .kernels_exp import LOOPS

    arguments = [_ready(x, dtype) for x in (values, offsets, *rest)]
    run(LOOPS[name](_REAL[dtype]), offsets.shape[0] - 1, arguments, shared=shared)


def _per_set(offsets: Tensor, *shape: int) -> tuple[int, ...]:
    return (offsets.shape[0] - 1, *shape)


def _again(function: Callable[..., Any], inputs: tuple[Tensor, ...], grads: tuple[Tensor, ...]) -> list[Tensor | None]:
    """Gradients that can be differentiated again: those of the plain form, computed a second time."""
    with torch.enable_grad():
        outputs = function(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        wanted = [x for x in inputs if x.requires_grad]
        found = iter(torch.autograd.grad(outputs, wanted, grads, create_graph=True, allow_unused=True))
    return [next(found) if x.requires_grad else None for x in inputs]


def _twice(values: Tensor) -> bool:
    """Whether a backward pass is to be differentiated again."""
    return torch.is_grad_enabled() and type(values) is Tensor


# ------------------------------------------------------------------------------------------------ sum, broadcast


def _keep_layout(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1], *inputs[-3:-1])
    ctx.rows, ctx.mean = inputs[0].shape[0], inputs[-1]


def _sum_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    offsets, element_ids, weights = ctx.saved_tensors
    spread = broadcast if element_ids is None else broadcast_to_elements
    return spread(grad, offsets, ctx.rows, element_ids, weights, ctx.mean), None, None, None, None


def _broadcast_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    offsets, element_ids, weights = ctx.saved_tensors
    return segment_sum(grad, offsets, element_ids, weights, ctx.mean), None, None, None, None, None


segment_sum = Operator(
    "segment_sum(Tensor values, Tensor offsets, Tensor? element_ids, Tensor? weights, bool mean) -> Tensor",
    lambda values, offsets, element_ids, weights, mean: [(_per_set(offsets, values.shape[1]), None)],
    _keep_layout,
    _sum_backward,
)
_SPREAD = "(Tensor per_set, Tensor offsets, SymInt rows, Tensor? element_ids, Tensor? weights, bool mean) -> Tensor"
broadcast, broadcast_to_elements = (
    Operator(
        name + _SPREAD,
        lambda per_set, offsets, rows, element_ids, weights, mean: [((rows, per_set.shape[1]), None)],
        _keep_layout,
        _broadcast_backward,
        shared=name == "broadcast_to_elements",
    )
    for name in ("broadcast", "broadcast_to_elements")
)

# -------------------------------------------------------------------------------------------------- maximum, minimum


def _keep_extremum(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    best, winners = output
    ctx.mark_non_differentiable(winners)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(inputs[0], best, winners, inputs[1])
    ctx.sign = inputs[2]


def _extremum_again(values: Tensor, offsets: Tensor, sign: int) -> Tensor:
    return plain.segment_extremum(values, Sets.unchecked(values, offsets), "amax" if sign > 0 else "amin")


def _extremum_backward(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Any, ...]:
    values, best, winners, offsets = ctx.saved_tensors
    if grad is None:
        return None, None, None, None
    if _twice(values):
        return _again(lambda x: _extremum_again(x, offsets, ctx.sign), (values,), (grad,))[0], None, None, None
    return extremum_backward(grad, offsets, winners, values, best, 0), None, None, None


extremum = Operator(
    "extremum(Tensor values, Tensor offsets, int sign, bool winners) -> (Tensor, Tensor)",
    lambda values, offsets, sign, winners: [
        (_per_set(offsets, values.shape[1]), None),
        (_per_set(offsets, values.shape[1] if winners else 0), torch.int32),
    ],
    _keep_extremum,
    _extremum_backward,
)
extremum_backward = Operator(
    "extremum_backward(Tensor grad, Tensor offsets, Tensor winners, Tensor values, Tensor best, int add) -> Tensor",
    lambda grad, offsets, winners, values, best, add: [(values.shape, None)],
)


class ExtremumWithValues(torch.autograd.Function):
    """The values themselves and their extremum, so that both gradients meet in one array; eager only."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, offsets: Tensor, sign: int) -> tuple[Tensor, Tensor]:
        """Return a view of the values, and the extremum."""
        best, winners = extremum.forward(values, offsets, sign, True)
        ctx.save_for_backward(values, best, winners, offsets)
        ctx.sign = sign
        return values.view_as(values), best

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None]:
        """Add the share of the winners to the gradient of the values."""
        values, best, winners, offsets = ctx.saved_tensors
        if torch.is_grad_enabled():
            form = lambda x: (x.view_as(x), _extremum_again(x, offsets, ctx.sign))  # noqa: E731
            return _again(form, (values,), grads)[0], None, None
        if grads[0].is_contiguous() and grads[0].dtype == (dtype := _precision(values)):
            # The gradient of the values comes from a matrix product, and nobody else holds it.
            launch("extremum_backward", dtype, grads[1], offsets, winners, values, best, 1, grads[0])
            return grads[0], None, None
        return grads[0] + extremum_backward(grads[1], offsets, winners, values, best, 0), None, None


# --------------------------------------------------------------------------------------------------------- deviations


def _keep_moments(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    values, offsets, weights, ctx.root = inputs
    ctx.save_for_backward(values, offsets, weights, *output)
    if ctx.root:
        ctx.mark_non_differentiable(output[0])


def _moments_backward(ctx: Any, grad_mean: Tensor, grad_squares: Tensor) -> tuple[Any, ...]:
    values, offsets, weights, mean, squares = ctx.saved_tensors
    if _twice(values):
        sets = Sets.unchecked(values, offsets, None, weights)
        form = lambda x: plain.segment_moments(x, sets, weights)  # noqa: E731
        if ctx.root:
            root = lambda x: plain.deviation(form(x)[1], sets.counts)  # noqa: E731
            return _again(root, (values,), (grad_squares,))[0], None, None, None
        return _again(form, (values,), (grad_mean, grad_squares))[0], None, None, None
    of_mean = None if ctx.root else grad_mean
    return moments_backward(grad_squares, offsets, of_mean, values, mean, squares, weights), None, None, None


moments = Operator(
    "moments(Tensor values, Tensor offsets, Tensor? weights, bool root) -> (Tensor, Tensor)",
    lambda values, offsets, weights, root: [(_per_set(offsets, values.shape[1]), None)] * 2,
    _keep_moments,
    _moments_backward,
)
moments_backward = Operator(
    "moments_backward(Tensor grad_squares, Tensor offsets, Tensor? grad_mean, Tensor values, Tensor mean, "
    "Tensor squares, Tensor? weights) -> Tensor",
    lambda grad_squares, offsets, grad_mean, values, mean, squares, weights: [(values.shape, None)],
)

# ------------------------------------------------------------------------------------------------------- exponentials


def _keep_exp_sum(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    values, offsets, weights, ctx.log = inputs
    ctx.mark_non_differentiable(output[0])
    ctx.save_for_backward(values, offsets, weights, output[1] if ctx.log else output[0])


def _exp_sum_backward(ctx: Any, _: Any, grad: Tensor) -> tuple[Any, ...]:
    values, offsets, weights, reference = ctx.saved_tensors
    if _twice(values):
        form = lambda x: plain.segment_exp_sum(x, Sets.unchecked(x, offsets), weights)  # noqa: E731
        again = (lambda x: plain.log_of_sum(*form(x))) if ctx.log else (lambda x: form(x)[1])
        return _again(again, (values,), (grad,))[0], None, None, None
    return exp_sum_backward(grad, offsets, values, reference, weights), None, None, None


exp_sum = Operator(
    "exp_sum(Tensor values, Tensor offsets, Tensor? weights, bool log) -> (Tensor, Tensor)",
    lambda values, offsets, weights, log: [(_per_set(offsets, values.shape[1]), None)] * 2,
    _keep_exp_sum,
    _exp_sum_backward,
)
exp_sum_backward = Operator(
    "exp_sum_backward(Tensor grad, Tensor offsets, Tensor values, Tensor peak, Tensor? weights) -> Tensor",
    lambda grad, offsets, values, peak, weights: [(values.shape, None)],
)

# ---------------------------------------------------------------------------------------------------------- attention


def _keep_softmax(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.mark_non_differentiable(output[0], output[3])
    ctx.save_for_backward(*inputs, *output[1:])


def _softmax_backward(ctx: Any, _: Any, grad_total: Tensor, grad_mean: Tensor, __: Any) -> tuple[Any, ...]:
    values, offsets, scores, weights, total, mean, shares = ctx.saved_tensors
    if _twice(values):
        form = lambda v, s: plain.segment_softmax(s, v, Sets.unchecked(v, offsets), weights)[1:]  # noqa: E731
        grad_values, grad_scores = _again(form, (values, scores), (grad_total, grad_mean))
    else:
        grad_values, grad_scores = softmax_backward(values, offsets, grad_total, grad_mean, total, mean, shares)
    return grad_values, None, grad_scores, None


softmax = Operator(
    "softmax(Tensor values, Tensor offsets, Tensor scores, Tensor? weights) -> (Tensor, Tensor, Tensor, Tensor)",
    lambda values, offsets, scores, weights: [
        (_per_set(offsets, scores.shape[1]), None),
        (_per_set(offsets, scores.shape[1]), None),
        (_per_set(offsets, scores.shape[1], values.shape[2]), None),
        (scores.shape, None),
    ],
    _keep_softmax,
    _softmax_backward,
)
softmax_backward = Operator(
    "softmax_backward(Tensor values, Tensor offsets, Tensor grad_total, Tensor grad_mean, Tensor total, "
    "Tensor mean, Tensor shares) -> (Tensor, Tensor)",
    lambda values, offsets, grad_total, grad_mean, total, mean, shares: [(values.shape, None), (shares.shape, None)],
)

# -------------------------------------------------------------------------------------------------- equivariant update


class AddBroadcast(torch.autograd.Function):
    """``activation(values + broadcast(per_set))``, in place; eager only."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, per_set: Tensor, offsets: Tensor, activation: plain.Activation | None
    ) -> Tensor:
        """Change the values in place."""
        from .kernels_exp import ACTIVATIONS

        fused = values.dtype == torch.float32 or activation == "relu"  # in float64 torch has the faster tanh and exp
        launch("add_broadcast", values.dtype, values, offsets, per_set, ACTIVATIONS[activation if fused else None])
        if not fused:
            plain.activate(values, activation, inplace=True)
        ctx.mark_dirty(values)
        ctx.activation = activation
        ctx.save_for_backward(offsets, None if activation is None else values)
        return values

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Compute the gradients of the values, and their sums over each set."""
        from .kernels_exp import ACTIVATIONS

        offsets, result = ctx.saved_tensors
        if result is None or torch.is_grad_enabled():
            if result is not None:
                grad = grad * plain.activation_slope(result, ctx.activation)
            return grad, segment_sum(grad, offsets, None, None, False), None, None
        before, per_set = torch.empty_like(result), result.new_empty(_per_set(offsets, result.shape[1]))
        code = ACTIVATIONS[ctx.activation]
        launch("add_broadcast_backward", result.dtype, grad, offsets, result, code, before, per_set)
        return before, per_set, None, None
