"""One parallel region per operation: threads that share the sets of a batch, and never wait for a late thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import count
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch

# Below this many bytes of members one thread runs; a guess, not a measured crossover.
PARALLEL_BYTES = 4 << 20
# A thread that loses its core in the middle of a piece is waited for, so pieces are small.
PIECES_PER_THREAD = 8


def run(kernel: Callable[..., None], offsets: np.ndarray, size: int, *arrays: Any) -> None:
    """Run `kernel(low, high, *arrays)` over all sets, on up to `torch.get_num_threads()` threads.

    The batch is divided into pieces of whole sets with about the same number of members. The calling thread and the
    helpers take one piece after another; a helper that gets no core in time takes none, and nobody waits for it. So
    the operation does not slow down on a machine whose cores are busy.

    Parameters
    ----------
    kernel : callable
        Compiled function that releases the interpreter lock and writes only to the rows of its own sets.
    offsets : ndarray of shape (B + 1,)
        Where each set begins.
    size : int
        Bytes of the members, which decides whether threads are used.
    *arrays
        Further arguments of the kernel.
    """
    sets = len(offsets) - 1
    threads = min(torch.get_num_threads(), sets) if size >= PARALLEL_BYTES else 1
    if threads < 2:
        kernel(0, sets, *arrays)
        return
    pieces = min(sets, PIECES_PER_THREAD * threads)
    bounds = np.searchsorted(offsets, np.linspace(offsets[0], offsets[-1], pieces + 1)[1:-1])
    region = _Region(kernel, [0, *bounds.tolist(), sets], arrays)
    helpers(threads - 1).share(region, threads - 1)
    region.work()
    region.wait()


class _Region:
    """The pieces of one operation, taken by any thread that comes by."""

    def __init__(self, kernel: Callable[..., None], bounds: list[int], arrays: tuple[Any, ...]) -> None:
        self.kernel, self.bounds, self.arrays = kernel, bounds, arrays
        self.pieces = len(bounds) - 1
        self.next = count().__next__  # one step of the interpreter: two threads never get the same piece
        self.done: list[None] = []
        self.finished = threading.Event()
        self.error: BaseException | None = None

    def work(self) -> None:
        while (piece := self.next()) < self.pieces:
            try:
                low, high = self.bounds[piece], self.bounds[piece + 1]
                if low < high:
                    self.kernel(low, high, *self.arrays)
            except BaseException as error:
                self.error = error
            self.done.append(None)
            if len(self.done) == self.pieces:
                self.finished.set()

    def wait(self) -> None:
        if len(self.done) < self.pieces:
            self.finished.wait()
        if self.error is not None:
            raise self.error


class _Helpers:
    """Daemon threads of this process that wait for regions."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.queue: SimpleQueue[_Region] = SimpleQueue()
        self.threads = 0

    def share(self, region: _Region, times: int) -> None:
        for _ in range(times):
            self.queue.put(region)

    def grow(self, wanted: int) -> None:
        while self.threads < wanted:
            threading.Thread(target=self._serve, name="deepsets-kernel", daemon=True).start()
            self.threads += 1

    def _serve(self) -> None:
        while True:
            self.queue.get().work()


_lock = threading.Lock()
_helpers: _Helpers | None = None


def helpers(wanted: int) -> _Helpers:
    """The helper threads of this process, at least `wanted`; a forked process starts its own."""
    global _helpers  # noqa: PLW0603  # one pool per process
    found = _helpers
    if found is None or found.process != os.getpid() or found.threads < wanted:
        with _lock:
            if _helpers is None or _helpers.process != os.getpid():
                _helpers = _Helpers()
            _helpers.grow(wanted)
            found = _helpers
    return found


def _forked() -> None:
    """A fork may happen while another thread holds the lock: the child gets a new one, and no helpers."""
    global _lock, _helpers
    _lock, _helpers = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
