"""Compiled loops that fuse several steps of a layer (numba): attention pooling, and the equivariant update.

The conventions are those of :mod:`deepsets.nn.kernels_numba`.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from .kernels_numba import _exp, _expm1, compiled

LINEAR, TANH, RELU, ELU = 0, 1, 2, 3
CODES = {None: LINEAR, "tanh": TANH, "relu": RELU, "elu": ELU}


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
