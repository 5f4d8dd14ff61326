"""Reductions over ragged sets, and the rule which implementation runs.

====================================================  =================================================================
compiled (numba), autograd function                   CPU, float32, float64, bfloat16, float16, from `SMALL` numbers on
compiled (numba), ``torch.ops.deepsets``              the same under `torch.compile`
plain torch (:mod:`~deepsets.nn.kernels_torch`)       the rest: small batches, other devices, export, `torch.func`
====================================================  =================================================================

`python -m benchmarks pooling` compares them. Small batches stay in plain torch so that they do not import and compile
anything; `SMALL` is a guess at where that stops paying, not a measured crossover.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from ..sets import Sets
from . import kernel_ops as ops
from . import kernels_torch as plain
from .kernels_torch import Activation

SMALL = 1 << 14  # numbers in the members of a batch below which plain torch runs
INSTALLED = find_spec("numba") is not None
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_FULL = _DTYPES[:2]
_TENSORS = (Tensor, torch.nn.Parameter)

PLAIN, SMALL_EAGER, EAGER, OPERATOR = 0, 1, 2, 3


@cache
def implementation() -> str:
    """Name the kernels that run on large CPU batches.

    Returns
    -------
    str
        ``"numba 0.68.1"``, or ``"torch (…)"`` with the reason why the compiled kernels are not used.
    """
    if not INSTALLED:
        return "torch (numba is not installed)"
    try:
        import numba

        from . import kernels_exp  # noqa: F401
    except Exception as error:  # numba refuses versions of NumPy and Python that it does not know
        return f"torch (numba cannot be imported: {error})"
    return f"numba {numba.__version__}"


def _choose(values: Tensor, size: int | None = None) -> int:
    """Apply the rule of the module's docstring; size: how many numbers the members have, if not those of the values."""
    if torch.compiler.is_compiling():
        if torch.compiler.is_exporting() or values.device.type != "cpu" or values.dtype not in _DTYPES:
            return PLAIN
        return OPERATOR if INSTALLED else PLAIN
    if values.device.type != "cpu" or values.dtype not in _DTYPES or type(values) not in _TENSORS:
        return PLAIN
    if torch._C._are_functorch_transforms_active() or values.shape[0] >= 1 << 31:
        return PLAIN
    if (values.numel() if size is None else size) < SMALL:
        return SMALL_EAGER
    return EAGER if INSTALLED and implementation().startswith("numba") else PLAIN


def _compiled(values: Tensor, weights: Tensor | None) -> bool:
    """Whether the compiled kernel runs; none has gradients of weights."""
    return _choose(values) > SMALL_EAGER and not (weights is not None and weights.requires_grad)


def check_rows(values: Tensor) -> None:
    """Raise an error unless the values are rows of floating-point features."""
    if not values.is_floating_point():
        raise ValueError(f"poolings take floating-point features, found {values.dtype}: embed ids first.")
    if values.ndim != 2:
        raise ValueError(
            f"poolings take members with one axis of features, values (N, D); found values of shape "
            f"{tuple(values.shape)}. Reshape them first, for example sets.map(lambda x: x.reshape(len(x), -1))."
        )


def segment_sum(values: Tensor, sets: Sets, weights: Tensor | None = None) -> Tensor:
    """Sum the members of each set.

    Members are added one after another in their order, whatever else is in the batch: the sum of a set has the same
    bits in every batch.

    Parameters
    ----------
    values : Tensor of shape (N, D), or (U, D) where `sets` has element ids
        Features of the members.
    sets : Sets
        The layout: offsets and element ids.
    weights : Tensor of shape (N,), optional
        Factors of the members.

    Returns
    -------
    Tensor of shape (B, D)
        The sums; 0 for an empty set.
    """
    check_rows(values)
    chosen, element_ids = _choose(values), sets.element_ids
    if chosen == SMALL_EAGER and element_ids is None and weights is None and values.dtype in _FULL:
        # 20 µs for 16 sets, forward + backward, against 30 µs of index_add
        return plain.SegmentSum.apply(values, sets.offsets, sets.set_ids if values.requires_grad else None)
    if chosen <= SMALL_EAGER:
        return plain.segment_sum(values, sets, weights)
    if weights is not None and weights.requires_grad:
        rows = values if element_ids is None else values.index_select(0, element_ids)
        values, element_ids, weights = rows * weights.to(rows.dtype)[:, None], None, None
    return ops.segment_sum(values, sets.offsets, element_ids, weights, False)


def segment_mean(values: Tensor, sets: Sets, weights: Tensor | None = None) -> Tensor:
    """Compute the weighted mean of the members of each set, 0 for an empty set; arguments as of :func:`segment_sum`."""
    check_rows(values)
    if _compiled(values, weights):
        return ops.segment_sum(values, sets.offsets, sets.element_ids, weights, True)
    return segment_sum(values, sets, weights) / plain.at_least(sets.sizes if weights is None else sets.counts)[:, None]


def segment_broadcast(per_set: Tensor, sets: Sets) -> Tensor:
    """Give each member the row of its set: (B, D) -> (N, D)."""
    if torch.compiler.is_compiling() or _choose(per_set, sets.total * per_set.shape[1]) <= SMALL_EAGER:
        return sets.broadcast(per_set)
    return ops.broadcast(per_set, sets.offsets, sets.total, None, None, False)


def segment_max(values: Tensor, sets: Sets) -> Tensor:
    """Take the largest value of each channel over the members of each set.

    Where several members share the maximum they share its gradient in equal parts, so that the gradient does not
    depend on the order of the members either.

    Parameters
    ----------
    values : Tensor of shape (N, D)
        Features of the members, in the order of the members (without element ids).
    sets : Sets
        The layout.

    Returns
    -------
    Tensor of shape (B, D)
        The maxima; 0 for an empty set.
    """
    return _extremum(values, sets, 1)


def segment_min(values: Tensor, sets: Sets) -> Tensor:
    """Take the smallest value of each channel over the members of each set.

    Parameters
    ----------
    values, sets : Tensor of shape (N, D), Sets
        As for :func:`segment_max`, and so are ties and empty sets.
    """
    return _extremum(values, sets, -1)


def _extremum(values: Tensor, sets: Sets, sign: int) -> Tensor:
    check_rows(values)
    if _choose(values) <= SMALL_EAGER:
        return plain.segment_extremum(values, sets, "amax" if sign > 0 else "amin")
    winners = torch.compiler.is_compiling() or (values.requires_grad and torch.is_grad_enabled())
    return ops.extremum(values, sets.offsets, sign, winners)[0]


def extremum_with_values(values: Tensor, sets: Sets, sign: int) -> tuple[Tensor, Tensor]:
    """Return the values, (N, D), and their maximum (sign 1) or minimum (-1), (B, D).

    For a caller that maps the values by a matrix and holds them nowhere else: both gradients then meet in one place,
    and the share of the winners is added into the gradient that the matrix product has made.
    """
    check_rows(values)
    if _choose(values) == EAGER:
        return ops.ExtremumWithValues.apply(values, sets.offsets, sign)
    return values, _extremum(values, sets, sign)


def segment_moments(values: Tensor, sets: Sets, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Compute the weighted mean of each set and the weighted sum of squared deviations from it: two (B, D) tensors."""
    check_rows(values)
    if _compiled(values, weights):
        return ops.moments(values, sets.offsets, weights, False)
    return plain.segment_moments(values, sets, weights)


def segment_std(values: Tensor, sets: Sets, weights: Tensor | None = None) -> Tensor:
    """Compute the weighted standard deviation of each set, (B, D); 0 for sets of equal members."""
    check_rows(values)
    if _compiled(values, weights):
        return ops.moments(values, sets.offsets, weights, True)[1]
    return plain.deviation(plain.segment_moments(values, sets, weights)[1], sets.counts)


def segment_exp_sum(values: Tensor, sets: Sets, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Compute the peak of each set, without gradient, and the sum of w·exp(x - peak): two (B, D) tensors.

    A member of weight 0 is absent: it does not set the peak.
    """
    check_rows(values)
    if _compiled(values, weights):
        return ops.exp_sum(values, sets.offsets, weights, False)
    return plain.segment_exp_sum(values, sets, weights)


def segment_logsumexp(values: Tensor, sets: Sets, weights: Tensor | None = None) -> Tensor:
    """Compute log Σ w·exp(x) of each set, (B, D); 0 for an empty set."""
    check_rows(values)
    if _compiled(values, weights):
        return ops.exp_sum(values, sets.offsets, weights, True)[1]
    return plain.log_of_sum(*plain.segment_exp_sum(values, sets, weights))


def segment_softmax(
    scores: Tensor, values: Tensor, sets: Sets, weights: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Average the values of each set, weighed by the exponentials of scores: attention.

    Scores (N, H) and values (N, V, D), of which head h reads ``values[:, h % V]``, give the largest score (B, H),
    without gradient, Σ w exp(score - peak) (B, H), and the means (B, H, D), which are 0 for an empty set.
    """
    dtype = torch.promote_types(scores.dtype, values.dtype)
    scores, values = scores.to(dtype), values.to(dtype)
    if _compiled(values, weights):
        return ops.softmax(values, sets.offsets, scores, weights)[:3]
    return plain.segment_softmax(scores, values, sets, weights)


def add_broadcast_(values: Tensor, per_set: Tensor, sets: Sets, activation: Activation | None = None) -> Tensor:
    """Compute ``activation(values + per_set of each member)`` in place: (N, D), (B, D) -> (N, D).

    For values that nobody else holds, such as the output of a linear map.
    """
    if torch.compiler.is_compiling() or values.dtype != per_set.dtype:
        return plain.activate(values + sets.broadcast(per_set), activation)
    full = values.dtype in (torch.float32, torch.float64) and values.is_contiguous()
    if full and _choose(values) == EAGER:
        return ops.AddBroadcast.apply(values, per_set, sets.offsets, activation)
    return plain.activate(values.add_(sets.broadcast(per_set)), activation, inplace=True)
