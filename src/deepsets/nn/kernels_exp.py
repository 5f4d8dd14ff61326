"""Compiled loops with exponentials (numba): logsumexp, attention pooling, and the equivariant update.

The conventions are those of :mod:`deepsets.nn.kernels_numba`.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import overload

from .kernels_numba import compiled

LINEAR, TANH, RELU, ELU = 0, 1, 2, 3
CODES = {None: LINEAR, "tanh": TANH, "relu": RELU, "elu": ELU}


def _exp(x):  # replaced by the overload below
    raise NotImplementedError


def _expm1(x):
    raise NotImplementedError


_MAGIC = np.float32(12582912.0)  # 1.5 · 2^23: adding it rounds to an integer, which stands in the low bits
_LOG2E, _LN2_HIGH, _LN2_LOW = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)
_C2, _C3, _C4, _C5, _C6, _C7 = (np.float32(1 / math.factorial(k)) for k in range(2, 8))
_ONE, _ZERO, _SMALLEST = np.float32(1), np.float32(0), np.float32(-87.3)


@overload(_exp)
def _exp_of(x):
    """Taylor series of exp after x = k ln 2 + r: within 2 ulp, and vectorised, unlike math.exp."""
    if x != types.float32:
        return lambda x: math.exp(x)

    def single(x):
        shifted = x * _LOG2E + _MAGIC
        k = shifted - _MAGIC
        r = (x - k * _LN2_HIGH) - k * _LN2_LOW
        series = _ONE + r * (_ONE + r * (_C2 + r * (_C3 + r * (_C4 + r * (_C5 + r * (_C6 + r * _C7))))))
        power = np.int32((np.float32(shifted).view(np.int32) - np.int32(0x4B400000 - 127)) << np.int32(23))
        return _ZERO if x < _SMALLEST else series * power.view(np.float32)

    return single


@overload(_expm1)
def _expm1_of(x):
    """Series of exp(x) - 1, without cancellation for small x."""
    if x != types.float32:
        return lambda x: math.expm1(x)

    def single(x):
        shifted = x * _LOG2E + _MAGIC
        k = shifted - _MAGIC
        r = (x - k * _LN2_HIGH) - k * _LN2_LOW
        series = r * (_ONE + r * (_C2 + r * (_C3 + r * (_C4 + r * (_C5 + r * (_C6 + r * _C7))))))
        power = np.int32((np.float32(shifted).view(np.int32) - np.int32(0x4B400000 - 127)) << np.int32(23))
        scale = power.view(np.float32)
        return -_ONE if x < _SMALLEST else series * scale + (scale - _ONE)

    return single


@compiled()
def segment_exp_sum(low, high, values, offsets, weights, peak, total):
    """peak[b] = max x_i over members with a weight, total[b] = Σ w_i exp(x_i - peak[b])."""
    width = values.shape[1]
    for b in range(low, high):
        start, stop = offsets[b], offsets[b + 1]
        found = False
        for d in range(width):
            peak[b, d] = 0
            total[b, d] = 0
        for i in range(start, stop):
            if weights.shape[0] and weights[i] <= 0:
                continue
            if not found:
                for d in range(width):
                    peak[b, d] = values[i, d]
                found = True
            for d in range(width):
                x, y = values[i, d], peak[b, d]
                peak[b, d] = x if (x > y) | (x != x) else y  # noqa: PLR0124  # nan wins, and stays
        for i in range(start, stop):
            weight = weights[i] if weights.shape[0] else values.dtype.type(1)
            if weight > 0:
                for d in range(width):
                    total[b, d] += _exp(values[i, d] - peak[b, d]) * weight


@compiled()
def segment_exp_sum_backward(low, high, grad, values, peak, offsets, weights, out):
    """out[i] = grad[b] w_i exp(x_i - peak[b])."""
    width = values.shape[1]
    for b in range(low, high):
        for i in range(offsets[b], offsets[b + 1]):
            weight = weights[i] if weights.shape[0] else values.dtype.type(1)
            if weight > 0:
                for d in range(width):
                    out[i, d] = grad[b, d] * (_exp(values[i, d] - peak[b, d]) * weight)
            else:
                for d in range(width):
                    out[i, d] = 0


# ------------------------------------------------------------------------ attention pooling, equivariant update


@compiled()
def segment_softmax_sum(low, high, scores, values, offsets, weights, peak, total, sums, shares):
    """Sums of the values (N, V, D) weighed by the exponentials of the scores (N, H); head h reads values h mod V.

    shares[i, h] = w_i exp(scores[i, h] - peak[b, h]); total and sums add them, and their products with the values.
    """
    heads, kinds, width = scores.shape[1], values.shape[1], values.shape[2]
    for b in range(low, high):
        start, stop = offsets[b], offsets[b + 1]
        found = False
        for h in range(heads):
            peak[b, h] = 0
            total[b, h] = 0
            for d in range(width):
                sums[b, h, d] = 0
        for i in range(start, stop):
            if weights.shape[0] and weights[i] <= 0:
                continue
            if not found:
                for h in range(heads):
                    peak[b, h] = scores[i, h]
                found = True
            for h in range(heads):
                x, y = scores[i, h], peak[b, h]
                peak[b, h] = x if (x > y) | (x != x) else y  # noqa: PLR0124  # nan wins, and stays
        for i in range(start, stop):
            weight = weights[i] if weights.shape[0] else scores.dtype.type(1)
            if weight <= 0:
                for h in range(heads):
                    shares[i, h] = 0
                continue
            for h in range(heads):
                share = _exp(scores[i, h] - peak[b, h]) * weight
                shares[i, h] = share
                total[b, h] += share
            for h in range(heads):
                share, kind = shares[i, h], h % kinds
                for d in range(width):
                    sums[b, h, d] += share * values[i, kind, d]


@compiled(fastmath={"reassoc", "contract", "nsz"})
def segment_softmax_sum_backward(low, high, grad_total, grad_sums, values, shares, offsets, grad_scores, grad_values):
    """The gradients of the scores and of the values."""
    heads, kinds, width = shares.shape[1], values.shape[1], values.shape[2]
    for b in range(low, high):
        for i in range(offsets[b], offsets[b + 1]):
            for h in range(heads):
                kind, share = h % kinds, shares[i, h]
                slope = grad_total[b, h]
                for d in range(width):
                    slope += grad_sums[b, h, d] * values[i, kind, d]
                grad_scores[i, h] = slope * share
                if h < kinds:
                    for d in range(width):
                        grad_values[i, kind, d] = share * grad_sums[b, h, d]
                else:
                    for d in range(width):
                        grad_values[i, kind, d] += share * grad_sums[b, h, d]


@compiled()
def add_broadcast(low, high, values, per_set, offsets, activation):
    """values[i] = activation(values[i] + per_set[b]), in place."""
    width = values.shape[1]
    two = values.dtype.type(2)
    zero = values.dtype.type(0)
    limit = values.dtype.type(44)  # tanh is 1 beyond 22 in both precisions
    for b in range(low, high):
        for i in range(offsets[b], offsets[b + 1]):
            if activation == TANH:
                for d in range(width):
                    x = values[i, d] + per_set[b, d]
                    y = _expm1(min(abs(x) * two, limit))
                    y = y / (y + two)
                    values[i, d] = y if x > 0 else (-y if x <= 0 else x)
            elif activation == RELU:
                for d in range(width):
                    x = values[i, d] + per_set[b, d]
                    values[i, d] = zero if x < 0 else x
            elif activation == ELU:
                for d in range(width):
                    x = values[i, d] + per_set[b, d]
                    values[i, d] = x if x > 0 else _expm1(x)
            else:
                for d in range(width):
                    values[i, d] += per_set[b, d]


@compiled()
def add_broadcast_backward(low, high, grad, result, offsets, activation, out, per_set):
    """out[i] = grad[i] · activation', per_set[b] = Σ out[i]; the slope follows from the result of the activation."""
    width = grad.shape[1]
    one = grad.dtype.type(1)
    zero = grad.dtype.type(0)
    for b in range(low, high):
        for d in range(width):
            per_set[b, d] = 0
        for i in range(offsets[b], offsets[b + 1]):
            if activation == TANH:
                for d in range(width):
                    y = result[i, d]
                    before = grad[i, d] * (one - y * y)
                    out[i, d] = before
                    per_set[b, d] += before
            elif activation == RELU:
                for d in range(width):
                    before = grad[i, d] if result[i, d] > 0 else zero
                    out[i, d] = before
                    per_set[b, d] += before
            else:
                for d in range(width):
                    y = result[i, d]
                    before = grad[i, d] if y > 0 else grad[i, d] * (y + one)
                    out[i, d] = before
                    per_set[b, d] += before
