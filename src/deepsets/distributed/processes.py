"""Worker processes of one machine, one thread each, which are replaced when they die."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from typing import Any

import torch

from ..train.process import keep_memory

PATIENCE = 20  # processes that may die of one item
_function: Any = None  # of a worker process, pickled until its first item


class Processes:
    """Processes that apply a function to items: this one, which works while the others start, and `count` - 1 others.

    They use one thread each; with `count` 0 it is this process alone, with all its threads. Each of the others is
    served by a thread of this one, which waits for its results and replaces it when it dies.
    """

    def __init__(self, function: Callable[[Any], Any], count: int) -> None:
        self.function, self.count = function, count
        self.threads = ThreadPoolExecutor(max(count - 1, 1))
        self.own, self.pools = threading.local(), list[ProcessPoolExecutor]()
        # A server that has imported what they need starts them. It must not import pyarrow, whose allocator starts a
        # thread: a process forked beside a thread may wait for ever for a lock that the thread held.
        served = "forkserver" in multiprocessing.get_all_start_methods()
        self.context: Any = multiprocessing.get_context("forkserver" if served else "spawn")
        if served:
            self.context.set_forkserver_preload(["deepsets.distributed", "numba"])

    def map(self, items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield items with `function(item)`, as they are finished. What a dead process had begun is done again."""
        alone, threads = self.count < 2 or len(items) < 2, torch.get_num_threads()
        waiting = {} if alone else {self.threads.submit(self._elsewhere, item): item for item in items}
        torch.set_num_threads(1 if self.count else threads)
        try:
            if alone:
                yield from ((item, self.function(item)) for item in items)
            mine = list(waiting)
            while waiting:
                future = mine.pop() if mine else None  # the others begin at the other end
                if future in waiting and future.cancel():
                    item = waiting.pop(future)
                    yield item, self.function(item)
                for done in wait(waiting, 0 if mine else None, FIRST_COMPLETED).done:
                    yield waiting.pop(done), done.result()
        finally:
            for future in waiting:
                future.cancel()
            torch.set_num_threads(threads)

    def close(self) -> None:
        """End the processes."""
        self.threads.shutdown()
        for pool in self.pools:
            pool.shutdown()

    def _elsewhere(self, item: Any) -> Any:
        for _ in range(PATIENCE):
            if not hasattr(self.own, "pool"):
                function = pickle.dumps(self.function)  # sent once, not with each item
                self.own.pool = ProcessPoolExecutor(1, self.context, initializer=_begin, initargs=(function,))
                self.pools.append(self.own.pool)
            try:
                return self.own.pool.submit(_call, item).result()
            except BrokenProcessPool:
                del self.own.pool
        raise BrokenProcessPool(
            f"{PATIENCE} worker processes died of the same part: is there enough memory? Fewer workers need less."
        )


def _begin(function: bytes) -> None:
    global _function  # noqa: PLW0603
    _function = function
    torch.set_num_threads(1)
    keep_memory()  # a third of the time of phi and pooling went into pages that came and went with every batch
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
