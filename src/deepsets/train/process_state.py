"""Process-wide state that a training touches: random generator, memory settings, Ctrl-C."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_GENERATOR_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):  # a forked child must not inherit a lock that another thread of the parent holds
    os.register_at_fork(after_in_child=_GENERATOR_LOCK._at_fork_reinit)  # type: ignore[attr-defined]

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed the global random generators of torch during the block, and restore their state afterwards.

    Layers such as dropout draw from the global generator. Blocks of different threads run one after another, so the
    numbers drawn in a block depend on `seed` alone, as long as all threads that draw random numbers at the same time
    use `seeded`.

    Parameters
    ----------
    seed : int
        Seed of the block.
    device : torch.device, optional
        A CUDA device whose generator is seeded and restored too.

    Examples
    --------
    >>> with seeded(7):
    ...     first = torch.rand(3)
    >>> with seeded(7):
    ...     second = torch.rand(3)
    >>> torch.equal(first, second)
    True
    """
    cuda = device if device is not None and device.type == "cuda" else None
    with _GENERATOR_LOCK:
        before = torch.default_generator.get_state()
        before_cuda = None if cuda is None else torch.cuda.get_rng_state(cuda)
        # torch.manual_seed would also record a stack trace for a GPU that may never be used, which costs 1 ms.
        torch.default_generator.manual_seed(seed)
        if cuda is not None:
            torch.cuda.manual_seed_all(seed)
        try:
            yield
        finally:
            torch.default_generator.set_state(before)
            if cuda is not None and before_cuda is not None:
                torch.cuda.set_rng_state(before_cuda, cuda)


def keep_memory() -> bool:
    """Tell glibc to keep freed memory instead of returning it to the system at every free.

    Large tensors otherwise cost page faults at every step, often more than the arithmetic. The process may hold more
    memory than it uses at the moment; the setting stays for the life of the process.

    Returns
    -------
    bool
        Whether the setting was applied; False where the C library is not glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    largest = 2**31 - 1
    return bool(
        mallopt(_M_MMAP_THRESHOLD, 2**30) and mallopt(_M_TRIM_THRESHOLD, largest) and mallopt(_M_TOP_PAD, 2**26)
    )


@contextmanager
def stop_after_step() -> Iterator[threading.Event]:
    """Turn Ctrl-C into an event that the loop reads after each step, so that the last checkpoint is complete.

    Yields
    ------
    threading.Event
        Set by SIGINT. Outside the main thread, which alone receives signals, it is never set.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
