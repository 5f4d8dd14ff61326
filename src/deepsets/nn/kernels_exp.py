"""Compiled loops with exponentials (numba): logsumexp, attention pooling, and the equivariant update.

The conventions are those of :mod:`deepsets.nn.kernels_numba`.
"""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np
from numba import njit, types
from numba.extending import overload

from .kernels_numba import _INT32, _INT64, LOOPS, _cube, _matrix, _number, _sets, _vector, loop, real

__all__ = ["ACTIVATIONS", "LOOPS"]

LINEAR, TANH, RELU, ELU = 0, 1, 2, 3
ACTIVATIONS = {None: LINEAR, "tanh": TANH, "relu": RELU, "elu": ELU}


def _exp(x):  # replaced by the overload below
    raise NotImplementedError


def _expm1(x):
    raise NotImplementedError


_MAGIC = np.float32(12582912.0)  # 1.5 · 2^23: adding it rounds to an integer, which stands in the low bits
_LOG2E, _LN2_HIGH, _LN2_LOW = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)
_C2, _C3, _C4, _C5, _C6, _C7 = (np.float32(1 / math.factorial(k)) for k in range(2, 8))
_ONE, _ZERO, _SMALLEST = np.float32(1), np.float32(0), np.float32(-87.3)


@njit(inline="always")
def _power_and_series(x):
    """2^k and exp(r) - 1 for x = k ln 2 + r: a Taylor series, within 2 ulp and vectorised, unlike math.exp."""
    shifted = x * _LOG2E + _MAGIC
    k = shifted - _MAGIC
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    series = r * (_ONE + r * (_C2 + r * (_C3 + r * (_C4 + r * (_C5 + r * (_C6 + r * _C7))))))
    power = _INT32((np.float32(shifted).view(_INT32) - _INT32(0x4B400000 - 127)) << _INT32(23))
    return power.view(np.float32), series


@overload(_exp)
def _exp_of(x):
    if x != types.float32:
        return lambda x: math.exp(x)

    def single(x):
        power, series = _power_and_series(x)
        return _ZERO if x < _SMALLEST else (_ONE + series) * power

    return single


@overload(_expm1)
def _expm1_of(x):
    if x != types.float32:
        return lambda x: math.expm1(x)

    def single(x):  # without cancellation for small x
        power, series = _power_and_series(x)
        return -_ONE if x < _SMALLEST else series * power + (power - _ONE)

    return single


@njit(inline="always")
def _peak(values, weights, start, stop, b, peak):
    """peak[b] = max x_i over members with a positive weight; 0 without any."""
    found = False
    for d in range(peak.shape[1]):
        peak[b, d] = 0
    for i in range(start, stop):
        if weights.shape[0] and weights[i] <= 0:
            continue
        for d in range(peak.shape[1]):
            x, y = values[i, d], peak[b, d]
            peak[b, d] = x if (not found) | (x > y) | (x != x) else y  # noqa: PLR0124  # nan wins, and stays
        found = True


@loop()
def exp_sum(words):
    """peak[b] = max x_i over members with a weight, total[b] = Σ w_i exp(x_i - peak[b]); log: log Σ w_i exp(x_i)."""
    values, offsets, weights = _matrix(words, 0, real), _vector(words, 1, _INT64), _vector(words, 2, real)
    log, peak, total = _number(words, 3), _matrix(words, 4, real), _matrix(words, 5, real)
    for b in _sets(words):
        start, stop = offsets[b], offsets[b + 1]
        _peak(values, weights, start, stop, b, peak)
        for d in range(values.shape[1]):
            total[b, d] = 0
        for i in range(start, stop):
            weight = weights[i] if weights.shape[0] else real(1)
            if weight > 0:
                for d in range(values.shape[1]):
                    total[b, d] += _exp(values[i, d] - peak[b, d]) * weight
        if log:
            for d in range(values.shape[1]):
                total[b, d] = peak[b, d] + math.log(total[b, d]) if total[b, d] > 0 else real(0)


@loop()
def exp_sum_backward(words):
    """out[i] = grad[b] · w_i exp(x_i - peak[b])."""
    grad, offsets, values = _matrix(words, 0, real), _vector(words, 1, _INT64), _matrix(words, 2, real)
    peak, weights, out = _matrix(words, 3, real), _vector(words, 4, real), _matrix(words, 5, real)
    for b in _sets(words):
        for i in range(offsets[b], offsets[b + 1]):
            weight = weights[i] if weights.shape[0] else real(1)
            if weight > 0:
                for d in range(values.shape[1]):
                    out[i, d] = grad[b, d] * (_exp(values[i, d] - peak[b, d]) * weight)
            else:
                for d in range(values.shape[1]):
                    out[i, d] = 0


# ---------------------------------------------------------------------------------------------------------- attention


@loop()
def softmax(words):
    """Means of the values (N, V, D) weighed by the exponentials of the scores (N, H); head h reads values h mod V.

    shares[i, h] = w_i exp(scores[i, h] - peak[b, h]), total = Σ shares, mean = Σ shares · values / total.
    """
    values, offsets, scores = _cube(words, 0, real), _vector(words, 1, _INT64), _matrix(words, 2, real)
    weights, peak, total = _vector(words, 3, real), _matrix(words, 4, real), _matrix(words, 5, real)
    mean, shares = _cube(words, 6, real), _matrix(words, 7, real)
    heads, kinds, width = scores.shape[1], values.shape[1], values.shape[2]
    for b in _sets(words):
        start, stop = offsets[b], offsets[b + 1]
        _peak(scores, weights, start, stop, b, peak)
        for h in range(heads):
            total[b, h] = 0
            for d in range(width):
                mean[b, h, d] = 0
        for i in range(start, stop):
            weight = weights[i] if weights.shape[0] else real(1)
            for h in range(heads):
                share = _exp(scores[i, h] - peak[b, h]) * weight if weight > 0 else real(0)
                shares[i, h] = share
                total[b, h] += share
            for h in range(heads):
                share, kind = shares[i, h], h % kinds
                for d in range(width):
                    mean[b, h, d] += share * values[i, kind, d]
        for h in range(heads):
            scale = 1 / total[b, h] if total[b, h] > 0 else real(0)
            for d in range(width):
                mean[b, h, d] *= scale


@loop(fastmath={"reassoc", "contract", "nsz"})
def softmax_backward(words):
    """The gradients of the values and of the scores, from those of the total and of the mean."""
    values, offsets, grad_total = _cube(words, 0, real), _vector(words, 1, _INT64), _matrix(words, 2, real)
    grad_mean, total, mean = _cube(words, 3, real), _matrix(words, 4, real), _cube(words, 5, real)
    shares, grad_values, grad_scores = _matrix(words, 6, real), _cube(words, 7, real), _matrix(words, 8, real)
    heads, kinds, width = shares.shape[1], values.shape[1], values.shape[2]
    for b in _sets(words):
        for h in range(heads):
            scale, kind = 1 / total[b, h] if total[b, h] > 0 else real(0), h % kinds
            base = real(0)
            for d in range(width):
                base += grad_mean[b, h, d] * mean[b, h, d]
            base = grad_total[b, h] - base * scale
            for i in range(offsets[b], offsets[b + 1]):
                share, slope = shares[i, h] * scale, real(0)
                for d in range(width):
                    slope += grad_mean[b, h, d] * values[i, kind, d]
                grad_scores[i, h] = shares[i, h] * base + share * slope
                if h < kinds:
                    for d in range(width):
                        grad_values[i, kind, d] = share * grad_mean[b, h, d]
                else:
                    for d in range(width):
                        grad_values[i, kind, d] += share * grad_mean[b, h, d]


# -------------------------------------------------------------------------------------------------- equivariant update


@loop()
def add_broadcast(words):
    """values[i] = activation(values[i] + per_set[b]), in place."""
    values, offsets, per_set = _matrix(words, 0, real), _vector(words, 1, _INT64), _matrix(words, 2, real)
    activation = _number(words, 3)
    width = values.shape[1]
    for b in _sets(words):
        for i in range(offsets[b], offsets[b + 1]):
            if activation == TANH:
                for d in range(width):
                    x = values[i, d] + per_set[b, d]
                    y = _expm1(min(abs(x) * real(2), real(44)))  # tanh is 1 beyond 22 in both precisions
                    y = y / (y + real(2))
                    values[i, d] = y if x > 0 else (-y if x <= 0 else x)
            elif activation == RELU:
                for d in range(width):
                    x = values[i, d] + per_set[b, d]
                    values[i, d] = real(0) if x < 0 else x
            elif activation == ELU:
                for d in range(width):
                    x = values[i, d] + per_set[b, d]
                    values[i, d] = x if x > 0 else _expm1(x)
            else:
                for d in range(width):
                    values[i, d] += per_set[b, d]


@loop()
def add_broadcast_backward(words):
    """out[i] = grad[i] · activation', per_set[b] = Σ out[i]; the slope follows from the result."""
    grad, offsets, result = _matrix(words, 0, real), _vector(words, 1, _INT64), _matrix(words, 2, real)
    activation, out, per_set = _number(words, 3), _matrix(words, 4, real), _matrix(words, 5, real)
    width = grad.shape[1]
    for b in _sets(words):
        for d in range(width):
            per_set[b, d] = 0
        for i in range(offsets[b], offsets[b + 1]):
            if activation == TANH:
                for d in range(width):
                    before = grad[i, d] * (real(1) - result[i, d] * result[i, d])
                    out[i, d] = before
                    per_set[b, d] += before
            elif activation == RELU:
                for d in range(width):
                    before = grad[i, d] if result[i, d] > 0 else real(0)
                    out[i, d] = before
                    per_set[b, d] += before
            else:
                for d in range(width):
                    y = result[i, d]
                    before = grad[i, d] if y > 0 else grad[i, d] * (y + real(1))
                    out[i, d] = before
                    per_set[b, d] += before
