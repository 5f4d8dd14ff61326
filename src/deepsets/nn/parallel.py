"""One parallel region per operation, on the threads of torch; pages of large results."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

PARALLEL_BYTES = 1 << 21  # below this many bytes of members one thread runs: it is done before another has begun
PIECES_PER_THREAD = 8  # a thread that loses its core in the middle of a piece is waited for, so pieces are small
LATE = 1e-3  # seconds of waiting for other threads, if also a third of the region, that count as a busy machine
PAUSES = 0.01, 1.0  # seconds for which one thread runs after that: the first time, and at most when it goes on
HUGE = 1 << 25  # bytes from which the C library asks the kernel for fresh pages at every allocation

HEAD = 6  # words before the arguments: where the counters begin, threads, pieces, when the caller had done its share
# in nanoseconds, and the addresses of OpenMP's functions for the number of the thread and for the time
COUNTER = 8  # words between the counters of two threads: a cache line

_busy_until = 0.0
_pause = PAUSES[0]


def _find_region() -> tuple[Any, list[int], Any]:
    """OpenMP's `GOMP_parallel`, which runs a function on the threads of torch; None where torch has another library.

    And the addresses of `omp_get_thread_num` and `omp_get_wtime`, and the latter as a function.
    """
    try:
        library = ctypes.CDLL(None)
        region, number, clock = library.GOMP_parallel, library.omp_get_thread_num, library.omp_get_wtime
    except (AttributeError, OSError, TypeError):
        return None, [0, 0], None
    region.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    region.restype, clock.restype = None, ctypes.c_double
    return region, [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in (number, clock)], clock


def _find_madvise() -> Any:
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return madvise


_region, _addresses, _clock = _find_region()
_madvise, _PAGE = _find_madvise(), mmap.PAGESIZE


def run(function: Any, sets: int, arguments: list[Tensor | int | None], *, shared: bool = False) -> None:
    """Run a compiled loop over all sets, on up to `torch.get_num_threads()` threads.

    The batch is divided into pieces of whole sets with about as many members each. A thread begins with its own pieces,
    the same rows in every operation, which its cache may still hold; then it takes what others have left. At the end
    OpenMP waits for a thread that has no core at the moment, with a piece or without: on a busy machine, a time slice
    of the scheduler. So when that happens, one thread runs for a while, the longer the more often it happens.

    Arguments are contiguous CPU tensors, integers, and None for absent arrays, in the order of the loop; `shared`:
    whether the sets write to the same rows, so that one thread must do them all.
    """
    global _busy_until, _pause  # noqa: PLW0603  # of all operations
    words, size = [0, 1, 1, 0, *_addresses], 0
    for argument in arguments:
        if isinstance(argument, Tensor):
            words += [argument.data_ptr(), *argument.shape, *[0] * (3 - argument.ndim)]
            size = max(size, argument.nbytes)
        else:
            words += [argument or 0, 0, 0, 0]
    threads = 1
    if size >= PARALLEL_BYTES and _region is not None and not shared and (start := _clock()) > _busy_until:
        threads = min(torch.get_num_threads(), sets)
    words[:3] = len(words), threads, min(sets, PIECES_PER_THREAD * threads) if threads > 1 else 1
    array = (ctypes.c_int64 * (len(words) + COUNTER * threads))(*words)
    if threads < 2:
        function.ctypes(array)
        return
    _region(function.address, ctypes.addressof(array), threads, 0)
    end = _clock()
    if end - array[3] * 1e-9 > max(LATE, (end - start) / 3):
        _busy_until = end + _pause
        _pause = min(2 * _pause, PAUSES[1])
    else:
        _pause = max(_pause / 2, PAUSES[0])


@contextmanager
def sleep_while_waiting(threads: int) -> Iterator[None]:
    """Let the threads of torch sleep when they wait for each other, instead of spinning, during the block.

    On busy cores a thread that spins takes its core from the one that it waits for. GNU OpenMP spins 300,000 times, but
    only 100 times while it has more threads than there are cores: a sleeping thread holds some more of them meanwhile.
    """
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        cores = os.cpu_count() or 1
        _region(_addresses[0], None, max(2, cores + 2 - threads), 0)  # runs a function without effect
        held.set()
        done.wait()

    if _region is None:
        yield
        return
    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    held.wait()
    try:
        yield
    finally:
        done.set()
        holder.join()


def use_huge_pages(tensor: Tensor) -> None:
    """Ask for pages of 2 MB, as NumPy does for large arrays: first touching them takes a fifth of the time.

    Before anything is written, and on Linux; a kernel without such pages ignores it.
    """
    if tensor.nbytes >= HUGE and _madvise is not None:
        start, end = -(-tensor.data_ptr() // _PAGE), (tensor.data_ptr() + tensor.nbytes) // _PAGE
        _madvise(start * _PAGE, (end - start) * _PAGE, mmap.MADV_HUGEPAGE)


def _forked() -> None:
    """OpenMP's threads do not exist in a forked process: it runs on one thread."""
    global _region  # noqa: PLW0603
    _region = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
