"""Worker processes of one machine, one thread each, which are replaced when they die."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch

from ..train.process import keep_memory

PATIENCE = 5  # process pools in a row that may break before an item is finished
_function: tuple[str, Any] = "", None  # of this process


def map_in_processes(function: Any, items: Sequence[Any], workers: int | None = None) -> Iterator[Any]:
    """Yield `function(item)` for all items, in order, computed by `workers` processes (default: one per core).

    Where a process dies, what it had begun is done again. With one worker or item, this process does the work.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(workers or cores, len(items))
    if workers <= 1:
        yield from map(function, items)
        return
    with tempfile.TemporaryDirectory(prefix="deepsets-") as folder:
        path = Path(folder) / "function"
        path.write_bytes(pickle.dumps(function))  # read once in each process, not sent with each item
        done = broken = 0
        while done < len(items):
            before = done
            pool = ProcessPoolExecutor(min(workers, len(items) - done), _context(), initializer=_begin)
            try:
                for future in [pool.submit(_call, str(path), item) for item in items[done:]]:
                    yield future.result()
                    done += 1
            except BrokenProcessPool:
                broken = 0 if done > before else broken + 1
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
            if broken == PATIENCE:
                raise RuntimeError(
                    f"worker processes died {PATIENCE} times without finishing one of the {len(items) - done} parts "
                    "that are left: is there enough memory? Fewer workers need less."
                )


def start_server() -> None:
    """Start the server of the worker processes, which imports what they need beside this process."""
    if _context().get_start_method() == "forkserver":
        forkserver.ensure_running()


def _context() -> Any:
    """Processes come from a server that has imported what they need, or are spawned.

    Not pyarrow: its allocator starts a thread when it is imported, and a process forked beside a thread may wait for
    ever for a lock that the thread held.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["deepsets.distributed", "numba"])
    return context


def _begin() -> None:
    torch.set_num_threads(1)
    keep_memory()  # a third of the time of phi and pooling went into pages that came and went with every batch
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _call(path: str, item: Any) -> Any:
    global _function  # noqa: PLW0603  # read once for all items of a run
    if _function[0] != path:
        _function = path, pickle.loads(Path(path).read_bytes())
    return _function[1](item)
