"""What a training shares with its process and with other processes: generators, memory, Ctrl-C, torchrun's group."""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from ..nn.parallel import sleep_while_waiting

_GENERATOR_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):  # a forked child must not inherit a lock that another thread of the parent holds
    os.register_at_fork(after_in_child=_GENERATOR_LOCK._at_fork_reinit)  # type: ignore[attr-defined]

WORK = 2e8  # multiplications of a matrix product for each thread: with fewer, threads wait longer than they work
_trainings: list[int] = []  # the user's number of threads, for each one that runs now
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


class StepThreads(ExitStack):
    """Threads of torch in the steps of a training: one, or more where its matrix products are large.

    Torch waits for all threads at the end of every operation; on busy cores a step of short operations takes many times
    as long with two threads as with one. The number follows from sizes alone, never from times, so that a training is
    reproducible. While there are several, they sleep instead of spinning when they wait.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        tables = {id(layer.weight) for layer in model.modules() if isinstance(layer, (nn.Embedding, nn.EmbeddingBag))}
        matrices = [p.numel() for p in model.parameters() if p.ndim > 1 and id(p) not in tables]
        self._weights = sum(matrices) / max(len(matrices), 1)
        self._sleep = False
        with _GENERATOR_LOCK:  # no other training is in a step
            if _trainings:  # but this Python thread may have met torch in one, and has got its number
                torch.set_num_threads(max(_trainings))
            _trainings.append(torch.get_num_threads())
        self.callback(_trainings.remove, torch.get_num_threads())

    @contextmanager
    def of_step(self) -> Iterator[Callable[[float], None]]:
        """Use one thread in the block, until it tells how many elements it has; then put the user's number back."""
        most = torch.get_num_threads()

        def use(elements: float) -> None:
            enough = max(1, int(elements * self._weights / WORK))
            threads = min(most, 1 << enough.bit_length() - 1)  # few different numbers: torch.compile compiles for each
            if threads > 1 and not self._sleep:
                self._sleep = True
                self.enter_context(sleep_while_waiting(most))
            torch.set_num_threads(threads)

        torch.set_num_threads(1)
        try:
            yield use
        finally:
            torch.set_num_threads(most)


def keep_memory() -> bool:
    """Tell glibc to keep freed memory instead of returning it to the system at every free.

    Large tensors otherwise cost page faults at every step, often more than the arithmetic. The setting stays for the
    life of the process. Returns whether it was applied: False where the C library is not glibc.
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


def release_memory() -> None:
    """Tell glibc to return freed memory to the system; nothing happens where the C library is not glibc."""
    if sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def stop_after_step() -> Iterator[threading.Event]:
    """Turn Ctrl-C into an event that the loop reads after each step, so that the last checkpoint is complete."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # which alone receives signals
        yield stop
        return
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


# ------------------------------------------------------------------------------------------- processes of torchrun


class Workers(NamedTuple):
    """Rank of this process and number of processes."""

    rank: int
    world: int


def training_device(device: str | torch.device | None, model: nn.Module) -> torch.device:
    """Device to train on; see :func:`train`. Under torchrun "auto" is the CUDA device of the local rank."""
    if device is None:
        first = next(model.parameters(), None)
        return torch.device("cpu") if first is None else first.device
    if device != "auto":
        wanted = torch.device(device)
        if wanted.type == "cuda" and not torch.cuda.is_available():
            raise ValueError(
                f"device={str(device)!r} was asked for, but torch finds no CUDA device: use 'auto' or 'cpu'."
            )
        return wanted
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", torch.cuda.current_device())))


def join_workers(device: torch.device) -> Workers:
    """Join the process group that torchrun describes in the environment; without one, this process is alone.

    A group created here (NCCL for weights on CUDA, otherwise Gloo) is left at exit: threads that stay would abort.
    """
    if not dist.is_available() or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Workers(0, 1)
    if not dist.is_initialized():
        # Its default arguments keep the group that exists when it is imported, which optimizers do: import it before.
        importlib.import_module("torch.distributed.nn.functional")
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(_leave)
    return Workers(dist.get_rank(), dist.get_world_size())


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def share_weights(model: nn.Module, me: Workers) -> None:
    """Start all processes from the weights of the first."""
    if me.world > 1:
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, 0)


def share_number(number: int, me: Workers, device: torch.device) -> int:
    """The number that the first process has."""
    if me.world == 1:
        return number
    shared = torch.tensor([number], dtype=torch.int64, device=device)
    dist.broadcast(shared, 0)
    return int(shared)


def sum_gradients(
    parameters: Iterable[nn.Parameter], totals: tuple[float, float, float], me: Workers
) -> tuple[float, float, float]:
    """Sum gradients and some numbers over all processes, in one message.

    Every process contributes the gradient of the *sum* of its losses. Dividing by the global number of losses
    afterwards gives the gradient of the whole batch, however unevenly it was divided. The numbers are the losses, how
    many there are, and requests to stop.
    """
    if me.world == 1:
        return totals
    parameters = [p for p in parameters if p.requires_grad]
    used = torch.tensor([p.grad is not None for p in parameters])
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    every = [*parts, used, torch.tensor(totals, dtype=torch.float64)]
    flat = torch.cat([part.reshape(-1).to(parts[0].device, torch.float64) for part in every])
    dist.all_reduce(flat)
    *grads, users, summed = flat.split([part.numel() for part in every])
    for p, part, grad, used_by in zip(parameters, parts, grads, users.tolist(), strict=True):
        # A parameter that no process used has no gradient, as with one process: AdamW would decay it on a zero.
        p.grad = part.copy_(grad.reshape(part.shape)) if used_by else None
    losses, number, stops = summed.tolist()
    return losses, number, stops
