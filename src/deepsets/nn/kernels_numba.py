"""Compiled loops over ragged sets (numba): each kernel handles the sets `low` to `high` of a batch.

Kernels read flat rows (N, D) and offsets (B + 1,) and write only to rows of their own sets, without the interpreter
lock: several threads may run one kernel on different sets at once. Members are added one after another in their
order, so a sum has the same bits in every batch. An optional array that is absent has no elements.

Importing this module imports numba; :mod:`deepsets.nn.kernels` does so on the first large batch. The compiled code of
each kernel and dtype is cached on disk (see `NUMBA_CACHE_DIR` in numba's documentation).
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit


def compiled(**options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Compile on the first call with each dtype; keep the code on disk where a folder can be written."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        try:
            return njit(nogil=True, cache=True, error_model="numpy", **options)(function)
        except RuntimeError:  # numba found no folder for its cache
            return njit(nogil=True, error_model="numpy", **options)(function)

    return decorate


# ------------------------------------------------------------------------------------------------ sum, broadcast


@compiled()
def segment_sum(low, high, values, offsets, element_ids, weights, out):
    """out[b] = Σ w_i x_i, with x_i = values[element_ids[i]] where `element_ids` is present."""
    width = values.shape[1]
    plain = element_ids.shape[0] == 0 and weights.shape[0] == 0
    for b in range(low, high):
        start, stop = offsets[b], offsets[b + 1]
        for d in range(width):
            out[b, d] = 0
        i = start
        if plain:
            while i + 4 <= stop:  # four rows per pass over `out`; the order of the additions stays
                for d in range(width):
                    out[b, d] = (((out[b, d] + values[i, d]) + values[i + 1, d]) + values[i + 2, d]) + values[i + 3, d]
                i += 4
        while i < stop:
            row = element_ids[i] if element_ids.shape[0] else i
            if weights.shape[0]:
                weight = weights[i]
                for d in range(width):
                    out[b, d] += values[row, d] * weight
            else:
                for d in range(width):
                    out[b, d] += values[row, d]
            i += 1


@compiled()
def broadcast(low, high, per_set, offsets, weights, out):
    """out[i] = w_i per_set[b] for the members i of set b."""
    width = per_set.shape[1]
    for b in range(low, high):
        for i in range(offsets[b], offsets[b + 1]):
            if weights.shape[0]:
                weight = weights[i]
                for d in range(width):
                    out[i, d] = per_set[b, d] * weight
            else:
                for d in range(width):
                    out[i, d] = per_set[b, d]


@compiled()
def broadcast_to_elements(low, high, per_set, offsets, element_ids, weights, out):
    """out[element_ids[i]] += w_i per_set[b]: sets share elements, so one thread runs it for all sets."""
    width = per_set.shape[1]
    for b in range(low, high):
        for i in range(offsets[b], offsets[b + 1]):
            row = element_ids[i]
            if weights.shape[0]:
                weight = weights[i]
                for d in range(width):
                    out[row, d] += per_set[b, d] * weight
            else:
                for d in range(width):
                    out[row, d] += per_set[b, d]


# -------------------------------------------------------------------------------------------------- maximum, minimum


@compiled()
def segment_extremum(low, high, values, offsets, sign, best, winners):
    """best[b] = max x_i (sign 1) or min x_i (sign -1); winners: the row of the winner, or minus the number of ties."""
    width = values.shape[1]
    place = np.empty(width, np.int32)
    ties = np.empty(width, np.int32)
    for b in range(low, high):
        start, stop = offsets[b], offsets[b + 1]
        if start == stop:
            for d in range(width):
                best[b, d] = 0
                winners[b, d] = 0
            continue
        row = np.int32(start)
        for d in range(width):
            best[b, d] = values[start, d]
            place[d] = row
            ties[d] = 1
        for i in range(start + 1, stop):
            row = np.int32(i)
            if sign > 0:
                for d in range(width):
                    x, y = values[i, d], best[b, d]
                    wins = (x > y) | (x != x)  # noqa: PLR0124  # nan wins, and stays
                    best[b, d] = x if wins else y
                    place[d] = row if wins else place[d]
                    ties[d] = np.int32(1) if wins else ties[d] + np.int32(x == y)
            else:
                for d in range(width):
                    x, y = values[i, d], best[b, d]
                    wins = (x < y) | (x != x)  # noqa: PLR0124  # nan wins, and stays
                    best[b, d] = x if wins else y
                    place[d] = row if wins else place[d]
                    ties[d] = np.int32(1) if wins else ties[d] + np.int32(x == y)
        for d in range(width):
            winners[b, d] = place[d] if ties[d] == 1 else -ties[d]


@compiled()
def segment_extremum_backward(low, high, grad, winners, values, best, offsets, add, out):
    """Give grad[b] to the winner of each channel, in equal parts where members tie; add: to what `out` holds."""
    width = values.shape[1]
    share = np.empty(width, values.dtype)
    for b in range(low, high):
        start, stop = offsets[b], offsets[b + 1]
        if start == stop:
            continue
        tie = False
        for d in range(width):
            tie |= winners[b, d] < 0
        if tie:
            for d in range(width):
                share[d] = grad[b, d] / max(np.int32(1), -winners[b, d])
            for i in range(start, stop):
                if add:
                    for d in range(width):
                        out[i, d] += share[d] if values[i, d] == best[b, d] else 0
                else:
                    for d in range(width):
                        out[i, d] = share[d] if values[i, d] == best[b, d] else 0
            continue
        if not add:
            for i in range(start, stop):
                for d in range(width):
                    out[i, d] = 0
        for d in range(width):
            out[winners[b, d], d] += grad[b, d]


# --------------------------------------------------------------------------------------------------------- deviations


@compiled()
def segment_moments(low, high, values, offsets, weights, mean, squares):
    """mean[b] = Σ w_i x_i / Σ w_i and squares[b] = Σ w_i (x_i - mean[b])².

    Both are corrected by the rest Σ w_i (x_i - mean[b]), which is 0 but for rounding: the deviation of equal members is
    then 0, and so is its gradient, whose slope is infinite there.
    """
    width = values.shape[1]
    rest = np.empty(width, values.dtype)
    for b in range(low, high):
        start, stop = offsets[b], offsets[b + 1]
        count = values.dtype.type(stop - start)
        if weights.shape[0]:
            count = values.dtype.type(0)
            for i in range(start, stop):
                count += weights[i]
        for d in range(width):
            mean[b, d] = 0
            squares[b, d] = 0
        if count <= 0:
            continue
        for i in range(start, stop):
            weight = weights[i] if weights.shape[0] else values.dtype.type(1)
            for d in range(width):
                mean[b, d] += values[i, d] * weight
        for d in range(width):
            mean[b, d] /= count
            rest[d] = 0
        for i in range(start, stop):
            weight = weights[i] if weights.shape[0] else values.dtype.type(1)
            for d in range(width):
                apart = values[i, d] - mean[b, d]
                rest[d] += apart * weight
                squares[b, d] += apart * apart * weight
        for d in range(width):
            shift = rest[d] / count
            mean[b, d] += shift
            squares[b, d] = max(squares[b, d] - rest[d] * shift, values.dtype.type(0))


@compiled()
def segment_moments_backward(low, high, grad_mean, grad_squares, values, mean, offsets, weights, out):
    """out[i] = w_i (grad_mean[b] / Σ w + 2 grad_squares[b] (x_i - mean[b]))."""
    width = values.shape[1]
    for b in range(low, high):
        start, stop = offsets[b], offsets[b + 1]
        count = values.dtype.type(stop - start)
        if weights.shape[0]:
            count = values.dtype.type(0)
            for i in range(start, stop):
                count += weights[i]
        scale = 1 / count if count > 0 else values.dtype.type(0)
        for i in range(start, stop):
            weight = weights[i] if weights.shape[0] else values.dtype.type(1)
            for d in range(width):
                slope = grad_squares[b, d] * (values[i, d] - mean[b, d])
                out[i, d] = weight * (grad_mean[b, d] * scale + slope + slope)
