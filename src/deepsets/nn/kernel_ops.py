"""The compiled kernels as differentiable operators on CPU tensors.

Each operator exists twice, with the same forward and backward: as a `torch.library.custom_op` in the namespace
``deepsets``, which `torch.compile` and `torch.export` see as one node, and as an autograd function, whose call costs a
third of the former (34 against 121 µs on one machine) and which therefore runs in eager mode. Second derivatives are
those of the plain torch form. bfloat16 and float16 are computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..sets import Sets
from . import kernels_torch as plain
from .parallel import run

checks = False  # tests switch this on: kernels trust their offsets, a wrong one would read foreign memory

_NO_IDS = np.zeros(0, np.int64)
_NOTHING: dict[torch.dtype, np.ndarray] = {
    torch.float32: np.zeros(0, np.float32),
    torch.float64: np.zeros(0, np.float64),
}


def _precision(values: Tensor) -> torch.dtype:
    return torch.float64 if values.dtype == torch.float64 else torch.float32


def _array(tensor: Tensor | None, dtype: torch.dtype) -> np.ndarray:
    return _NOTHING[dtype] if tensor is None else tensor.detach().to(dtype).contiguous().numpy()


def _ids(tensor: Tensor | None) -> np.ndarray:
    return _NO_IDS if tensor is None else tensor.contiguous().numpy()


def _run(kernel: Callable[..., None], offsets: Tensor, rows: Tensor, *arrays: Any, members: int | None = None) -> None:
    """Run a kernel over all sets; `rows` is the largest array, (N, ...)."""
    places = _ids(offsets)
    if checks:
        _check(places, rows.shape[0] if members is None else members)
    run(kernel, places, rows.numel() * rows.element_size(), *arrays)


def _check(offsets: np.ndarray, members: int) -> None:
    if offsets[0] != 0 or offsets[-1] != members or (np.diff(offsets) < 0).any():
        raise ValueError(
            f"offsets must rise from 0 to the number of members, {members}; found {offsets[:5].tolist()} … "
            f"{offsets[-1]}. Sets checks this when a batch is made."
        )


def _again(function: Callable[..., Any], inputs: tuple[Tensor, ...], grads: tuple[Tensor, ...]) -> list[Tensor | None]:
    """Gradients that can be differentiated again: those of the plain form, computed a second time."""
    with torch.enable_grad():
        outputs = function(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        wanted = [x for x in inputs if x.requires_grad]
        found = iter(torch.autograd.grad(outputs, wanted, grads, create_graph=True, allow_unused=True))
    return [next(found) if x.requires_grad else None for x in inputs]


def _sets(offsets: Tensor, members: Tensor) -> Sets:
    return Sets.unchecked(members, offsets)


class Operator:
    """One kernel with its gradient, called as a function."""

    def __init__(
        self, name: str, forward: Callable[..., Any], fake: Callable[..., Any], setup: Any = None, backward: Any = None
    ) -> None:
        self.forward = forward  # without autograd
        self.operator = torch.library.custom_op(f"deepsets::{name}", forward, mutates_args=())
        self.operator.register_fake(fake)
        self.apply: Any = forward
        if backward is not None:
            self.operator.register_autograd(backward, setup_context=setup)
            methods = {"forward": staticmethod(_with_context(forward, setup)), "backward": staticmethod(backward)}
            function: Any = type(name, (torch.autograd.Function,), methods)
            self.apply = function.apply

    def __call__(self, *inputs: Any) -> Any:
        """Run the operator: on ordinary tensors by the autograd function, on those of a tracer by the custom op."""
        if type(inputs[0]) is Tensor and not torch.compiler.is_compiling():
            return self.apply(*inputs)
        return self.operator(*inputs)


def _with_context(forward: Callable[..., Any], setup: Callable[..., None]) -> Callable[..., Any]:
    def run_forward(ctx: Any, *inputs: Any) -> Any:
        output = forward(*inputs)
        setup(ctx, inputs, output)
        return output

    return run_forward


# ------------------------------------------------------------------------------------------------ sum, broadcast


def _sum(values: Tensor, offsets: Tensor, element_ids: Tensor | None, weights: Tensor | None) -> Tensor:
    from . import kernels_numba as loops

    dtype = _precision(values)
    out = values.new_empty(offsets.shape[0] - 1, values.shape[1], dtype=dtype)
    arrays = _array(values, dtype), _ids(offsets), _ids(element_ids), _array(weights, dtype), out.numpy()
    _run(loops.segment_sum, offsets, values, *arrays, members=None if element_ids is None else len(element_ids))
    return out.to(values.dtype)


def _broadcast(
    per_set: Tensor, offsets: Tensor, rows: int, element_ids: Tensor | None, weights: Tensor | None
) -> Tensor:
    from . import kernels_numba as loops

    dtype = _precision(per_set)
    arrays = _array(per_set, dtype), _ids(offsets)
    if element_ids is None:
        out = per_set.new_empty(rows, per_set.shape[1], dtype=dtype)
        _run(loops.broadcast, offsets, out, *arrays, _array(weights, dtype), out.numpy())
    else:
        out = per_set.new_zeros(rows, per_set.shape[1], dtype=dtype)
        loops.broadcast_to_elements(
            0, len(per_set), *arrays, _ids(element_ids), _array(weights, dtype), out.numpy()
        )  # fmt: skip
    return out.to(per_set.dtype)


def _keep_layout(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1], *inputs[-2:])
    ctx.rows = inputs[0].shape[0]


def _sum_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    offsets, element_ids, weights = ctx.saved_tensors
    return broadcast(grad, offsets, ctx.rows, element_ids, weights), None, None, None


def _broadcast_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    offsets, element_ids, weights = ctx.saved_tensors
    return segment_sum(grad, offsets, element_ids, weights), None, None, None, None


segment_sum = Operator(
    "segment_sum",
    _sum,
    lambda values, offsets, element_ids, weights: values.new_empty(offsets.shape[0] - 1, values.shape[1]),
    _keep_layout,
    _sum_backward,
)
broadcast = Operator(
    "broadcast",
    _broadcast,
    lambda per_set, offsets, rows, element_ids, weights: per_set.new_empty(rows, per_set.shape[1]),
    _keep_layout,
    _broadcast_backward,
)

# -------------------------------------------------------------------------------------------------- maximum, minimum


def _extremum(values: Tensor, offsets: Tensor, sign: int) -> tuple[Tensor, Tensor]:
    from . import kernels_numba as loops

    dtype = _precision(values)
    best = values.new_empty(offsets.shape[0] - 1, values.shape[1], dtype=dtype)
    winners = torch.empty_like(best, dtype=torch.int32)
    _run(
        loops.segment_extremum, offsets, values,
        _array(values, dtype), _ids(offsets), sign, best.numpy(), winners.numpy(),
    )  # fmt: skip
    return best.to(values.dtype), winners


def extremum_share(
    grad: Tensor, winners: Tensor, values: Tensor, best: Tensor, offsets: Tensor, into: Tensor | None = None
) -> Tensor:
    """The gradient of an extremum, (N, D), added to `into` (float32 or float64, contiguous) where that is given."""
    from . import kernels_numba as loops

    dtype = _precision(values)
    out = torch.empty_like(values, dtype=dtype, memory_format=torch.contiguous_format) if into is None else into
    arrays = _array(grad, dtype), winners.numpy(), _array(values, dtype), _array(best, dtype), _ids(offsets)
    _run(loops.segment_extremum_backward, offsets, values, *arrays, into is not None, out.numpy())
    return out if into is not None else out.to(values.dtype)


def _share(grad: Tensor, winners: Tensor, values: Tensor, best: Tensor, offsets: Tensor) -> Tensor:
    return extremum_share(grad, winners, values, best, offsets)


def _keep_extremum(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    best, winners = output
    ctx.mark_non_differentiable(winners)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(inputs[0], best, winners, inputs[1])
    ctx.sign = inputs[2]


def _extremum_backward(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Any, ...]:
    values, best, winners, offsets = ctx.saved_tensors
    if grad is None:
        return None, None, None
    if torch.is_grad_enabled() and type(values) is Tensor:
        name = "amax" if ctx.sign > 0 else "amin"
        found = _again(lambda x: plain.segment_extremum(x, _sets(offsets, x), name), (values,), (grad,))
        return found[0], None, None
    return extremum_backward(grad, winners, values, best, offsets), None, None


extremum_backward = Operator(
    "segment_extremum_backward", _share, lambda grad, winners, values, best, offsets: torch.empty_like(values)
)
segment_extremum = Operator(
    "segment_extremum",
    _extremum,
    lambda values, offsets, sign: (
        values.new_empty(offsets.shape[0] - 1, values.shape[1]),
        values.new_empty(offsets.shape[0] - 1, values.shape[1], dtype=torch.int32),
    ),
    _keep_extremum,
    _extremum_backward,
)
