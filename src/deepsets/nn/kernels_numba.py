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

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic

from .kernels_vector import BYTES, copy_to_rows, extremum_columns, give_to_winners, sum_columns
from .parallel import COUNTER, HEAD

LOOPS: dict[str, Callable[[Any], Any]] = {}
real = np.float32  # in the compiled copies of a loop: their precision
_INT32, _INT64 = np.int32, np.int64
STREAM = 1 << 24  # bytes from which gradients are written past the caches, which could not hold them
_lock = threading.Lock()  # numba cannot compile one function in two threads at once


def loop(**options: Any) -> Callable[[Callable[..., None]], Callable[[Any], Any]]:
    """Compile a loop on its first use with a precision, numpy.float32 or numpy.float64, which it knows as `real`."""

    def decorate(function: Callable[..., None]) -> Callable[[Any], Any]:
        compiled: dict[Any, Any] = {}

        def get(precision: Any) -> Any:
            with _lock:
                if precision not in compiled:
                    compiled[precision] = _compile(function, precision, options)
            return compiled[precision]

        LOOPS[function.__name__] = get
        return get

    return decorate


def build_key(folder: Path = Path(__file__).parent) -> str:
    """Return a hash of all modules of kernels: numba's cache notices a change of the loop's own module only."""
    sources = sorted([*folder.glob("kernels_*.py"), folder / "parallel.py"])
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]


BUILD = build_key()  # of the modules as they are imported: files that change later belong to another build


def _compile(function: Callable[..., None], precision: Any, options: dict[str, Any]) -> Any:
    copy = FunctionType(function.__code__, {**function.__globals__, "real": precision}, function.__name__)
    copy.__qualname__ = f"{function.__name__}_{precision.__name__}_{BUILD}"  # names the file of the machine code
    copy.__module__ = function.__module__
    signature = types.void(types.CPointer(types.int64))
    try:
        return cfunc(signature, cache=True, error_model="numpy", **options)(copy)
    except RuntimeError:  # numba found no folder for its cache
        return cfunc(signature, error_model="numpy", **options)(copy)


# ---------------------------------------------------------------------------------------------- pieces and arguments


@intrinsic
def _pointer(context, address):
    def code(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), code


@intrinsic
def _count_up(context, words, k):
    """Add 1 to word k, and return what it was: one step, so two threads never get the same number."""

    def code(context, builder, signature, args):
        place = builder.gep(args[0], [args[1]])
        return builder.atomic_rmw("add", place, context.get_constant(types.int64, 1), "seq_cst")

    return types.int64(words, types.int64), code


def _without_arguments(kind, result):
    """The code that calls a C function without arguments at an address."""

    def code(context, builder, signature, args):
        return builder.call(builder.inttoptr(args[0], ir.FunctionType(kind, ()).as_pointer()), ())

    return result(types.int64), code


@intrinsic
def _call_int(context, address):
    return _without_arguments(ir.IntType(32), types.int32)


@intrinsic
def _call_double(context, address):
    return _without_arguments(ir.DoubleType(), types.float64)


@njit
def _first_set(offsets, row):
    """The first set that begins at this row or behind it."""
    low, high = 0, offsets.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if offsets[middle] < row:
            low = middle + 1
        else:
            high = middle
    return low


@njit
def _sets(words):
    """Numbers of the sets of the pieces that this thread takes: its own ones, then what the others have left."""
    counters, threads, pieces = words[0], words[1], words[2]
    offsets = _vector(words, 1, _INT64)
    sets = offsets.shape[0] - 1
    rows = offsets[sets]
    me = _call_int(words[4]) if threads > 1 else 0
    for other in range(threads):
        owner = (me + other) % threads
        start, stop = owner * pieces // threads, (owner + 1) * pieces // threads
        piece = start + _count_up(words, counters + COUNTER * owner)
        while piece < stop:
            last = sets if piece + 1 == pieces else _first_set(offsets, (piece + 1) * rows // pieces)
            for b in range(_first_set(offsets, piece * rows // pieces), last):  # noqa: UP028  # no `yield from` in numba
                yield b
            piece = start + _count_up(words, counters + COUNTER * owner)
    if threads > 1 and me == 0:
        words[3] = _INT64(1e9 * _call_double(words[5]))


@njit(inline="always")
def _number(words, k):
    return words[HEAD + 4 * k]


@njit(inline="always")
def _vector(words, k, dtype):
    return carray(_pointer(words[HEAD + 4 * k]), (words[HEAD + 1 + 4 * k],), dtype)


@njit(inline="always")
def _matrix(words, k, dtype):
    return carray(_pointer(words[HEAD + 4 * k]), (words[HEAD + 1 + 4 * k], words[HEAD + 2 + 4 * k]), dtype)


@njit(inline="always")
def _cube(words, k, dtype):
    return carray(
        _pointer(words[HEAD + 4 * k]),
        (words[HEAD + 1 + 4 * k], words[HEAD + 2 + 4 * k], words[HEAD + 3 + 4 * k]),
        dtype,
    )


# ------------------------------------------------------------------------------------------------ sum, broadcast


@njit(inline="always")
def _total(weights, start, stop, real):
    """Σ w_i, or the number of members without weights."""
    if weights.shape[0] == 0:
        return real(stop - start)
    count = real(0)
    for i in range(start, stop):
        count += weights[i]
    return count


@njit(inline="always")
def _divisor(mean, weights, start, stop, real):
    """What the sum of a set is divided by: Σ w_i for the mean, if it is positive; else 1."""
    count = _total(weights, start, stop, real) if mean else real(1)
    return count if count > 0 else real(1)


@loop()
def segment_sum(words):
    """out[b] = Σ w_i x_i, or that over Σ w_i; x_i = values[element_ids[i]] where `element_ids` is present."""
    values, offsets, element_ids = _matrix(words, 0, real), _vector(words, 1, _INT64), _vector(words, 2, _INT64)
    weights, mean, out = _vector(words, 3, real), _number(words, 4), _matrix(words, 5, real)
    width = values.shape[1]
    plain = element_ids.shape[0] == 0 and weights.shape[0] == 0
    for b in _sets(words):
        start, stop, done = offsets[b], offsets[b + 1], 0
        if plain:
            done = sum_columns(width, _number(words, 0), start, stop, _number(words, 5), b, real(0))
        for d in range(done, width):
            out[b, d] = 0
        for i in range(start, stop if done < width else start):
            row = element_ids[i] if element_ids.shape[0] else i
            if weights.shape[0]:
                for d in range(width):
                    out[b, d] += values[row, d] * weights[i]
            else:
                for d in range(done, width):
                    out[b, d] += values[row, d]
        if mean:
            count = _divisor(mean, weights, start, stop, real)
            for d in range(width):
                out[b, d] /= count


@njit(inline="always")
def _streams(words, k, size):
    """Whether argument k, a matrix, is written past the caches: it is large, and its rows are whole vectors."""
    address, rows, row = words[HEAD + 4 * k], words[HEAD + 1 + 4 * k], words[HEAD + 2 + 4 * k] * size
    return _INT64(rows * row >= STREAM and row % BYTES == 0 and address % BYTES == 0)


@loop()
def broadcast(words):
    """out[i] = w_i per_set[b] for the members i of set b, or that over Σ w_i."""
    per_set, offsets, weights = _matrix(words, 0, real), _vector(words, 1, _INT64), _vector(words, 4, real)
    mean, out, width = _number(words, 5), _matrix(words, 6, real), per_set.shape[1]
    stream = _streams(words, 6, out.itemsize)
    for b in _sets(words):
        start, stop = offsets[b], offsets[b + 1]
        count = _divisor(mean, weights, start, stop, real)
        if weights.shape[0]:
            for i in range(start, stop):
                for d in range(width):
                    out[i, d] = per_set[b, d] / count * weights[i]
            continue
        done = copy_to_rows(width, _number(words, 0), b, start, stop, _number(words, 6), stream, count)
        for i in range(start, stop if done < width else start):
            for d in range(done, width):
                out[i, d] = per_set[b, d] / count


@loop()
def broadcast_to_elements(words):
    """out[element_ids[i]] += w_i per_set[b], or that over Σ w_i: sets share elements, so one thread does all sets."""
    per_set, offsets, weights = _matrix(words, 0, real), _vector(words, 1, _INT64), _vector(words, 4, real)
    element_ids, mean, out = _vector(words, 3, _INT64), _number(words, 5), _matrix(words, 6, real)
    out[:] = 0
    for b in range(per_set.shape[0]):
        start, stop = offsets[b], offsets[b + 1]
        count = _divisor(mean, weights, start, stop, real)
        for i in range(start, stop):
            row, factor = element_ids[i], (weights[i] if weights.shape[0] else real(1)) / count
            for d in range(per_set.shape[1]):
                out[row, d] += per_set[b, d] * factor


# -------------------------------------------------------------------------------------------------- maximum, minimum


@loop()
def extremum(words):
    """best[b] = max x_i (sign 1) or min x_i (-1); winners, if wanted: the row of the winner, or minus how many tie."""
    values, offsets, sign = _matrix(words, 0, real), _vector(words, 1, _INT64), real(_number(words, 2))
    wanted, best, winners = _number(words, 3), _matrix(words, 4, real), _matrix(words, 5, _INT32)
    width, places = values.shape[1], _number(words, 5) if wanted else 0
    for b in _sets(words):
        start, stop = offsets[b], offsets[b + 1]
        if start == stop:
            for d in range(width):
                best[b, d] = 0
            for d in range(winners.shape[1]):
                winners[b, d] = 0
            continue
        done = extremum_columns(width, _number(words, 0), start, stop, _number(words, 4), places, b, sign)
        for d in range(done, width):
            top, place, ties = values[start, d] * sign, start, 1
            for i in range(start + 1, stop):
                x = values[i, d] * sign
                if x > top or x != x:  # noqa: PLR0124  # nan wins, and stays
                    top, place, ties = x, i, 1
                elif x == top:
                    ties += 1
            best[b, d] = top * sign
            if wanted:
                winners[b, d] = place if ties == 1 else -ties


@loop()
def extremum_backward(words):
    """Give grad[b] to the winner of each channel, in equal parts where members tie; add: to what `out` holds."""
    grad, offsets, winners = _matrix(words, 0, real), _vector(words, 1, _INT64), _matrix(words, 2, _INT32)
    values, best, add = _matrix(words, 3, real), _matrix(words, 4, real), _number(words, 5)
    out = _matrix(words, 6, real)
    width = values.shape[1]
    share, stream = np.empty(width, real), _streams(words, 6, out.itemsize)
    for b in _sets(words):
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
        else:
            addresses = _number(words, 0), _number(words, 2), _number(words, 6)
            done = give_to_winners(width, addresses[0], addresses[1], b, start, stop, addresses[2], stream, real(0))
            for i in range(start, stop if done < width else start):
                for d in range(done, width):
                    out[i, d] = grad[b, d] if winners[b, d] == i else real(0)


# --------------------------------------------------------------------------------------------------------- deviations


@loop()
def moments(words):
    """mean[b] = Σ w_i x_i / Σ w_i and squares[b] = Σ w_i (x_i - mean[b])²; root: that over Σ w_i, and its root.

    Both are corrected by the rest Σ w_i (x_i - mean[b]), which is 0 but for rounding: the deviation of equal
    members is then 0, and so is its gradient, whose slope is infinite there.
    """
    values, offsets, weights = _matrix(words, 0, real), _vector(words, 1, _INT64), _vector(words, 2, real)
    root, mean, squares = _number(words, 3), _matrix(words, 4, real), _matrix(words, 5, real)
    width = values.shape[1]
    rest = np.empty(width, real)
    for b in _sets(words):
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
            square = max(squares[b, d] - rest[d] * shift, real(0))
            squares[b, d] = math.sqrt(square / count) if root else square


@loop()
def moments_backward(words):
    """out[i] = w_i (grad_mean[b] / Σ w + 2 grad_squares[b] (x_i - mean[b])); without grad_mean, of the root."""
    grad_squares, offsets, grad_mean = _matrix(words, 0, real), _vector(words, 1, _INT64), _matrix(words, 2, real)
    values, mean, squares = _matrix(words, 3, real), _matrix(words, 4, real), _matrix(words, 5, real)
    weights, out, width = _vector(words, 6, real), _matrix(words, 7, real), values.shape[1]
    base, slope = np.zeros(width, real), np.empty(width, real)
    for b in _sets(words):
        start, stop = offsets[b], offsets[b + 1]
        count = _total(weights, start, stop, real)
        scale = 1 / count if count > 0 else real(0)
        for d in range(width):
            if grad_mean.shape[0]:
                base[d], slope[d] = grad_mean[b, d] * scale, 2 * grad_squares[b, d]
            else:  # equal members have gradient 0 instead of an infinite slope
                slope[d] = grad_squares[b, d] * scale / squares[b, d] if squares[b, d] > 0 else real(0)
        for i in range(start, stop):
            weight = weights[i] if weights.shape[0] else real(1)
            for d in range(width):
                out[i, d] = weight * (base[d] + slope[d] * (values[i, d] - mean[b, d]))
