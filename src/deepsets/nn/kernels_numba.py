"""Compiled loops over ragged sets (numba).

A loop is a C function of one array of integers, which holds the addresses and shapes of its arguments (see
:func:`deepsets.nn.parallel.run`). It takes one piece of the batch after another, so several threads may run it at once
on the same arguments, and it writes only to rows of the sets of its pieces. Arguments are flat rows (N, D), offsets
(B + 1,) and results; an optional argument that is absent has no elements. Members are added one after another in their
order, so a sum has the same bits in every batch.

Importing this module imports numba; :mod:`deepsets.nn.kernels` does so on the first large batch. Each loop is compiled
on its first use, and the machine code is kept on disk (see `NUMBA_CACHE_DIR` in numba's documentation).
"""
# mypy: ignore-errors
# ruff: noqa: D103

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic, overload

LINEAR, TANH, RELU, ELU = 0, 1, 2, 3
ACTIVATIONS = {None: LINEAR, "tanh": TANH, "relu": RELU, "elu": ELU}
_INT32, _INT64 = np.int32, np.int64
_lock = threading.Lock()  # numba cannot compile one function in two threads at once


def loop(**options: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Compile the function that `make` returns for a precision, numpy.float32 or numpy.float64, on its first use."""

    def decorate(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        compiled: dict[Any, Any] = {}

        def get(real: Any) -> Any:
            if real not in compiled:
                with _lock:
                    if real not in compiled:
                        compiled[real] = _compile(make(real), options)
            return compiled[real]

        return get

    return decorate


def _compile(function: Callable[..., None], options: dict[str, Any]) -> Any:
    signature = types.void(types.CPointer(types.int64))
    try:
        return cfunc(signature, cache=True, error_model="numpy", **options)(function)
    except RuntimeError:  # numba found no folder for its cache
        return cfunc(signature, error_model="numpy", **options)(function)


# ---------------------------------------------------------------------------------------------- pieces and arguments


@intrinsic
def _pointer(context, address):
    def code(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), code


@intrinsic
def _count_up(context, words):
    """Add 1 to the first word, and return what it was: one step, so two threads never get the same number."""

    def code(context, builder, signature, args):
        return builder.atomic_rmw("add", args[0], context.get_constant(types.int64, 1), "seq_cst")

    return types.int64(words), code


@njit(inline="always")
def _piece(words):
    """The sets `low` to `high` of the next piece; (0, 0) when there is none left."""
    piece, pieces, sets = _count_up(words), words[1], words[2]
    if piece >= pieces:
        return 0, 0
    return piece * sets // pieces, (piece + 1) * sets // pieces


@njit(inline="always")
def _first_piece(words):
    low, high = _piece(words)
    if high == 0:
        words[3] = 1  # this thread came late: the others have done everything
    return low, high


@njit(inline="always")
def _number(words, k):
    return words[4 + 4 * k]


@njit(inline="always")
def _vector(words, k, dtype):
    return carray(_pointer(words[4 + 4 * k]), (words[5 + 4 * k],), dtype)


@njit(inline="always")
def _matrix(words, k, dtype):
    return carray(_pointer(words[4 + 4 * k]), (words[5 + 4 * k], words[6 + 4 * k]), dtype)


@njit(inline="always")
def _cube(words, k, dtype):
    return carray(_pointer(words[4 + 4 * k]), (words[5 + 4 * k], words[6 + 4 * k], words[7 + 4 * k]), dtype)


# ------------------------------------------------------------------------------------------------ sum, broadcast


@loop()
def segment_sum(real):
    def segment_sum(words):
        """out[b] = Σ w_i x_i, with x_i = values[element_ids[i]] where `element_ids` is present."""
        values, offsets, element_ids = _matrix(words, 0, real), _vector(words, 1, _INT64), _vector(words, 2, _INT64)
        weights, out = _vector(words, 3, real), _matrix(words, 4, real)
        width = values.shape[1]
        plain = element_ids.shape[0] == 0 and weights.shape[0] == 0
        low, high = _first_piece(words)
        while low < high:
            for b in range(low, high):
                i, stop = offsets[b], offsets[b + 1]
                for d in range(width):
                    out[b, d] = 0
                while plain and i + 4 <= stop:  # four rows per pass over `out`; the order of the additions stays
                    for d in range(width):
                        two = (out[b, d] + values[i, d]) + values[i + 1, d]
                        out[b, d] = (two + values[i + 2, d]) + values[i + 3, d]
                    i += 4
                while i < stop:
                    row = element_ids[i] if element_ids.shape[0] else i
                    if weights.shape[0]:
                        for d in range(width):
                            out[b, d] += values[row, d] * weights[i]
                    else:
                        for d in range(width):
                            out[b, d] += values[row, d]
                    i += 1
            low, high = _piece(words)

    return segment_sum


@loop()
def broadcast(real):
    def broadcast(words):
        """out[i] = w_i per_set[b] for the members i of set b."""
        per_set, offsets, weights = _matrix(words, 0, real), _vector(words, 1, _INT64), _vector(words, 4, real)
        out = _matrix(words, 5, real)
        low, high = _first_piece(words)
        while low < high:
            for b in range(low, high):
                for i in range(offsets[b], offsets[b + 1]):
                    if weights.shape[0]:
                        for d in range(per_set.shape[1]):
                            out[i, d] = per_set[b, d] * weights[i]
                    else:
                        for d in range(per_set.shape[1]):
                            out[i, d] = per_set[b, d]
            low, high = _piece(words)

    return broadcast


@loop()
def broadcast_to_elements(real):
    def broadcast_to_elements(words):
        """out[element_ids[i]] += w_i per_set[b]: sets share elements, so one thread runs it for all sets."""
        per_set, offsets, weights = _matrix(words, 0, real), _vector(words, 1, _INT64), _vector(words, 4, real)
        element_ids, out = _vector(words, 3, _INT64), _matrix(words, 5, real)
        out[:] = 0
        for b in range(per_set.shape[0]):
            for i in range(offsets[b], offsets[b + 1]):
                row = element_ids[i]
                if weights.shape[0]:
                    for d in range(per_set.shape[1]):
                        out[row, d] += per_set[b, d] * weights[i]
                else:
                    for d in range(per_set.shape[1]):
                        out[row, d] += per_set[b, d]

    return broadcast_to_elements


# -------------------------------------------------------------------------------------------------- maximum, minimum


@loop()
def extremum(real):
    def extremum(words):
        """best[b] = max x_i (sign 1) or min x_i (-1); winners: the row of the winner, or minus the number of ties."""
        values, offsets, sign = _matrix(words, 0, real), _vector(words, 1, _INT64), real(_number(words, 2))
        best, winners = _matrix(words, 3, real), _matrix(words, 4, _INT32)
        width = values.shape[1]
        top, place, ties = np.empty(width, real), np.empty(width, _INT32), np.empty(width, _INT32)
        low, high = _first_piece(words)
        while low < high:
            for b in range(low, high):
                start, stop = offsets[b], offsets[b + 1]
                if start == stop:
                    for d in range(width):
                        best[b, d] = 0
                        winners[b, d] = 0
                    continue
                for d in range(width):
                    top[d] = values[start, d] * sign
                    place[d] = start
                    ties[d] = 1
                for i in range(start + 1, stop):
                    row = _INT32(i)
                    for d in range(width):
                        x, y = values[i, d] * sign, top[d]
                        wins = (x > y) | (x != x)  # noqa: PLR0124  # nan wins, and stays
                        top[d] = x if wins else y
                        place[d] = row if wins else place[d]
                        ties[d] = _INT32(1) if wins else ties[d] + _INT32(x == y)
                for d in range(width):
                    best[b, d] = top[d] * sign
                    winners[b, d] = place[d] if ties[d] == 1 else -ties[d]
            low, high = _piece(words)

    return extremum


@loop()
def extremum_backward(real):
    def extremum_backward(words):
        """Give grad[b] to the winner of each channel, in equal parts where members tie; add: to what `out` holds."""
        grad, offsets, winners = _matrix(words, 0, real), _vector(words, 1, _INT64), _matrix(words, 2, _INT32)
        values, best, add = _matrix(words, 3, real), _matrix(words, 4, real), _number(words, 5)
        out = _matrix(words, 6, real)
        width = values.shape[1]
        share = np.empty(width, real)
        low, high = _first_piece(words)
        while low < high:
            for b in range(low, high):
                start, stop = offsets[b], offsets[b + 1]
                if start == stop:
                    continue
                tie = False
                for d in range(width):
                    tie |= winners[b, d] < 0
                if tie:
                    for d in range(width):
                        share[d] = grad[b, d] / max(_INT32(1), -winners[b, d])
                    for i in range(start, stop):
                        for d in range(width):
                            gets = share[d] if values[i, d] == best[b, d] else real(0)
                            out[i, d] = out[i, d] + gets if add else gets
                elif add:
                    for d in range(width):
                        out[winners[b, d], d] += grad[b, d]
                elif stop - start <= 16:  # comparing all rows of a small set is faster than to find the winners
                    for i in range(start, stop):
                        row = _INT32(i)
                        for d in range(width):
                            out[i, d] = grad[b, d] if winners[b, d] == row else real(0)
                else:
                    for i in range(start, stop):
                        for d in range(width):
                            out[i, d] = 0
                    for d in range(width):
                        out[winners[b, d], d] = grad[b, d]
            low, high = _piece(words)

    return extremum_backward


# --------------------------------------------------------------------------------------------------------- deviations


@njit(inline="always")
def _total(weights, start, stop, real):
    """Σ w_i, or the number of members without weights."""
    if weights.shape[0] == 0:
        return real(stop - start)
    count = real(0)
    for i in range(start, stop):
        count += weights[i]
    return count


@loop()
def moments(real):
    def moments(words):
        """mean[b] = Σ w_i x_i / Σ w_i and squares[b] = Σ w_i (x_i - mean[b])².

        Both are corrected by the rest Σ w_i (x_i - mean[b]), which is 0 but for rounding: the deviation of equal
        members is then 0, and so is its gradient, whose slope is infinite there.
        """
        values, offsets, weights = _matrix(words, 0, real), _vector(words, 1, _INT64), _vector(words, 2, real)
        mean, squares = _matrix(words, 3, real), _matrix(words, 4, real)
        width = values.shape[1]
        rest = np.empty(width, real)
        low, high = _first_piece(words)
        while low < high:
            for b in range(low, high):
                start, stop = offsets[b], offsets[b + 1]
                for d in range(width):
                    mean[b, d] = 0
                    squares[b, d] = 0
                    rest[d] = 0
                count = _total(weights, start, stop, real)
                if count <= 0:
                    continue
                for i in range(start, stop):
                    weight = weights[i] if weights.shape[0] else real(1)
                    for d in range(width):
                        mean[b, d] += values[i, d] * weight
                for d in range(width):
                    mean[b, d] /= count
                for i in range(start, stop):
                    weight = weights[i] if weights.shape[0] else real(1)
                    for d in range(width):
                        apart = values[i, d] - mean[b, d]
                        rest[d] += apart * weight
                        squares[b, d] += apart * apart * weight
                for d in range(width):
                    shift = rest[d] / count
                    mean[b, d] += shift
                    squares[b, d] = max(squares[b, d] - rest[d] * shift, real(0))
            low, high = _piece(words)

    return moments


@loop()
def moments_backward(real):
    def moments_backward(words):
        """out[i] = w_i (grad_mean[b] / Σ w + 2 grad_squares[b] (x_i - mean[b]))."""
        grad_mean, offsets, grad_squares = _matrix(words, 0, real), _vector(words, 1, _INT64), _matrix(words, 2, real)
        values, mean, weights = _matrix(words, 3, real), _matrix(words, 4, real), _vector(words, 5, real)
        out = _matrix(words, 6, real)
        low, high = _first_piece(words)
        while low < high:
            for b in range(low, high):
                start, stop = offsets[b], offsets[b + 1]
                count = _total(weights, start, stop, real)
                scale = 1 / count if count > 0 else real(0)
                for i in range(start, stop):
                    weight = weights[i] if weights.shape[0] else real(1)
                    for d in range(values.shape[1]):
                        slope = grad_squares[b, d] * (values[i, d] - mean[b, d])
                        out[i, d] = weight * (grad_mean[b, d] * scale + slope + slope)
            low, high = _piece(words)

    return moments_backward


# ------------------------------------------------------------------------------------------------------- exponentials


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
def exp_sum(real):
    def exp_sum(words):
        """peak[b] = max x_i over members with a weight, total[b] = Σ w_i exp(x_i - peak[b])."""
        values, offsets, weights = _matrix(words, 0, real), _vector(words, 1, _INT64), _vector(words, 2, real)
        peak, total = _matrix(words, 3, real), _matrix(words, 4, real)
        low, high = _first_piece(words)
        while low < high:
            for b in range(low, high):
                start, stop = offsets[b], offsets[b + 1]
                _peak(values, weights, start, stop, b, peak)
                for d in range(values.shape[1]):
                    total[b, d] = 0
                for i in range(start, stop):
                    weight = weights[i] if weights.shape[0] else real(1)
                    if weight > 0:
                        for d in range(values.shape[1]):
                            total[b, d] += _exp(values[i, d] - peak[b, d]) * weight
            low, high = _piece(words)

    return exp_sum


@loop()
def exp_sum_backward(real):
    def exp_sum_backward(words):
        """out[i] = grad[b] · w_i exp(x_i - peak[b])."""
        grad, offsets, values = _matrix(words, 0, real), _vector(words, 1, _INT64), _matrix(words, 2, real)
        peak, weights, out = _matrix(words, 3, real), _vector(words, 4, real), _matrix(words, 5, real)
        low, high = _first_piece(words)
        while low < high:
            for b in range(low, high):
                for i in range(offsets[b], offsets[b + 1]):
                    weight = weights[i] if weights.shape[0] else real(1)
                    if weight > 0:
                        for d in range(values.shape[1]):
                            out[i, d] = grad[b, d] * (_exp(values[i, d] - peak[b, d]) * weight)
                    else:
                        for d in range(values.shape[1]):
                            out[i, d] = 0
            low, high = _piece(words)

    return exp_sum_backward


# ---------------------------------------------------------------------------------------------------------- attention


@loop()
def softmax(real):
    def softmax(words):
        """Means of the values (N, V, D) weighed by the exponentials of the scores (N, H); head h reads values h mod V.

        shares[i, h] = w_i exp(scores[i, h] - peak[b, h]), total = Σ shares, mean = Σ shares · values / total.
        """
        values, offsets, scores = _cube(words, 0, real), _vector(words, 1, _INT64), _matrix(words, 2, real)
        weights, peak, total = _vector(words, 3, real), _matrix(words, 4, real), _matrix(words, 5, real)
        mean, shares = _cube(words, 6, real), _matrix(words, 7, real)
        heads, kinds, width = scores.shape[1], values.shape[1], values.shape[2]
        low, high = _first_piece(words)
        while low < high:
            for b in range(low, high):
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
            low, high = _piece(words)

    return softmax


@loop(fastmath={"reassoc", "contract", "nsz"})
def softmax_backward(real):
    def softmax_backward(words):
        """The gradients of the values and of the scores, from those of the total and of the mean."""
        values, offsets, grad_total = _cube(words, 0, real), _vector(words, 1, _INT64), _matrix(words, 2, real)
        grad_mean, total, mean = _cube(words, 3, real), _matrix(words, 4, real), _cube(words, 5, real)
        shares, grad_values, grad_scores = _matrix(words, 6, real), _cube(words, 7, real), _matrix(words, 8, real)
        heads, kinds, width = shares.shape[1], values.shape[1], values.shape[2]
        low, high = _first_piece(words)
        while low < high:
            for b in range(low, high):
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
            low, high = _piece(words)

    return softmax_backward


# -------------------------------------------------------------------------------------------------- equivariant update


@loop()
def add_broadcast(real):
    def add_broadcast(words):
        """values[i] = activation(values[i] + per_set[b]), in place."""
        values, offsets, per_set = _matrix(words, 0, real), _vector(words, 1, _INT64), _matrix(words, 2, real)
        activation = _number(words, 3)
        width = values.shape[1]
        low, high = _first_piece(words)
        while low < high:
            for b in range(low, high):
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
            low, high = _piece(words)

    return add_broadcast


@loop()
def add_broadcast_backward(real):
    def add_broadcast_backward(words):
        """out[i] = grad[i] · activation', per_set[b] = Σ out[i]; the slope follows from the result."""
        grad, offsets, result = _matrix(words, 0, real), _vector(words, 1, _INT64), _matrix(words, 2, real)
        activation, out, per_set = _number(words, 3), _matrix(words, 4, real), _matrix(words, 5, real)
        width = grad.shape[1]
        low, high = _first_piece(words)
        while low < high:
            for b in range(low, high):
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
            low, high = _piece(words)

    return add_broadcast_backward
