"""Workers of one machine: threads of this process, or processes, which are replaced when they die."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from typing import Any

import torch

from ..train.process import keep_memory

PATIENCE = 20  # processes that may die of one item
_function: Any = None  # of a worker process, pickled until its first item


class Workers:
    """Workers that apply a function to items, by default as many as there are cores.

    Each is a thread of this process. With `processes` all threads but the first, which works here from the first second
    on, have a process of their own: they wait for its results, and replace it when it dies.
    """

    def __init__(self, function: Callable[[Any], Any], count: int | None = None, *, processes: bool) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.function, self.count, self.processes = function, count or cores, processes
        self.free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(self.count):
            self.free.put(number)
        self.pools: dict[int, ProcessPoolExecutor] = {}
        keep_memory()  # a third of the time of phi and pooling went into pages that came and went with every batch

    def map(self, items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield items with `function(item)`, as they are finished. What a dead process had begun is done again."""
        count, before = max(min(self.count, len(items)), 1), torch.get_num_threads()
        threads = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(self.count // count,))
        found = {threads.submit(self._do, item): item for item in items}
        try:
            yield from ((found[done], done.result()) for done in as_completed(found))
        finally:
            threads.shutdown(cancel_futures=True)
            torch.set_num_threads(before)

    def close(self) -> None:
        """End the processes."""
        for pool in self.pools.values():
            pool.shutdown()

    def _do(self, item: Any) -> Any:
        number = self.free.get()
        try:
            if number == 0 or not self.processes:
                return self.function(item)
            for _ in range(PATIENCE):
                try:
                    return self._pool(number).submit(_call, item).result()
                except BrokenProcessPool:
                    del self.pools[number]
        finally:
            self.free.put(number)
        raise BrokenProcessPool(
            f"{PATIENCE} worker processes died of the same part: is there enough memory? Fewer workers need less."
        )

    def _pool(self, number: int) -> ProcessPoolExecutor:
        if number not in self.pools:
            # A server that has imported what they need starts them. It must not import pyarrow, whose allocator starts
            # a thread: a process forked beside a thread may wait for ever for a lock that the thread held.
            served = "forkserver" in multiprocessing.get_all_start_methods()
            context: Any = multiprocessing.get_context("forkserver" if served else "spawn")
            if served:
                context.set_forkserver_preload(["deepsets.distributed", "numba"])
            function = pickle.dumps(self.function)  # sent once, not with each item
            self.pools[number] = ProcessPoolExecutor(1, context, initializer=_begin, initargs=(function,))
        return self.pools[number]


def _begin(function: bytes) -> None:
    global _function  # noqa: PLW0603
    _function = function
    torch.set_num_threads(1)
    keep_memory()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _call(item: Any) -> Any:
    global _function  # noqa: PLW0603
    if isinstance(_function, bytes):  # not at the start, where an error would end the process
        _function = pickle.loads(_function)
    return _function(item)
