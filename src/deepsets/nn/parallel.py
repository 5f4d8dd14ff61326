"""One parallel region per operation, on the threads of torch."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

import torch
from torch import Tensor

PARALLEL_BYTES = 1 << 20  # below this many bytes of members one thread runs
PIECES_PER_THREAD = 8  # a thread that loses its core in the middle of a piece is waited for, so pieces are small
LATE = 1e-3  # seconds of a region after which a thread that got no piece counts as late
PAUSE = 0.25  # seconds for which one thread runs after that

_busy_until = 0.0


def _find_region() -> Any:
    """OpenMP's `GOMP_parallel`, which runs a function on the threads of torch; None where torch has another library."""
    try:
        region = ctypes.CDLL(None).GOMP_parallel
    except (AttributeError, OSError, TypeError):
        return None
    region.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    region.restype = None
    return region


_region = _find_region()


def run(function: Any, sets: int, arguments: list[Tensor | int | None], *, shared: bool = False) -> None:
    """Run a compiled loop over all sets, on up to `torch.get_num_threads()` threads.

    The batch is divided into pieces of whole sets, and the threads take one piece after another. A thread that gets no
    core in time takes none, but OpenMP waits until it has come: on a busy machine, a time slice of the scheduler. So
    when that happens, one thread runs for the next `PAUSE` seconds.

    Parameters
    ----------
    function : numba.cfunc
        A loop of :mod:`deepsets.nn.kernels_numba`.
    sets : int
        Number of sets.
    arguments : list
        Contiguous CPU tensors, integers, and None for absent arrays, in the order of the loop.
    shared : bool, default=False
        Whether the sets write to the same rows, so that one thread must do them all.
    """
    global _busy_until  # noqa: PLW0603  # of all operations
    words, size = [0, 1, sets, 0], 0
    for argument in arguments:
        if isinstance(argument, Tensor):
            words += [argument.data_ptr(), *argument.shape, *[0] * (3 - argument.ndim)]
            size = max(size, argument.nbytes)
        else:
            words += [argument or 0, 0, 0, 0]
    threads, start = 1, time.monotonic()
    if size >= PARALLEL_BYTES and _region is not None and not shared and start > _busy_until:
        threads = min(torch.get_num_threads(), sets)
    words[1] = min(sets, PIECES_PER_THREAD * threads) if threads > 1 else 1
    array = (ctypes.c_int64 * len(words))(*words)
    if threads < 2:
        function.ctypes(array)
        return
    _region(function.address, ctypes.addressof(array), threads, 0)
    end = time.monotonic()
    if array[3] and end - start > LATE:
        _busy_until = end + PAUSE


def _forked() -> None:
    """OpenMP's threads do not exist in a forked process: it runs on one thread."""
    global _region  # noqa: PLW0603
    _region = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
