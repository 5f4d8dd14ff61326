"""Worker processes of one machine, one thread each, which are replaced when they die."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import Any

import torch

from ..train.process import keep_memory

PATIENCE = 5  # times in a row that processes may die before an item is finished
_function: tuple[str, Any] = "", None  # of this process


class Processes:
    """Processes of this machine, by default one per core: this one, which works while the others start, and others."""

    def __init__(self, count: int | None) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.count = count or cores
        self.pool: ProcessPoolExecutor | None = None
        # Not pyarrow: its allocator starts a thread when it is imported, and a process forked beside a thread may wait
        # for ever for a lock that the thread held.
        served = "forkserver" in multiprocessing.get_all_start_methods()
        self.context: Any = multiprocessing.get_context("forkserver" if served else "spawn")
        if served:
            self.context.set_forkserver_preload(["deepsets.distributed", "numba"])

    def prepare(self) -> None:
        """Start the server of the processes, which imports what they need, beside this process."""
        if self.count > 1 and self.context.get_start_method() == "forkserver":
            forkserver.ensure_running()

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield items with `function(item)`, as they are finished. What a dead process had begun is done again."""
        others = min(self.count, len(items)) - 1
        if others < 1:
            yield from ((item, function(item)) for item in items)
            return
        waiting, again, running, broken = deque(items), deque[Any](), dict[Future[Any], Any](), 0
        lock, threads = threading.RLock(), torch.get_num_threads()

        def feed() -> None:
            with lock:
                while (waiting or again) and sum(not future.done() for future in running) < others:
                    future = self._submit(path, (again or waiting)[0])
                    running[future] = (again or waiting).popleft()
                    future.add_done_callback(feed_again)

        def feed_again(future: Future[Any]) -> None:
            """Called in a thread of the pool, while this one works on an item."""
            if not future.cancelled() and future.exception() is None:
                with suppress(RuntimeError):  # the pool is broken or closed, which the main loop finds
                    feed()

        with tempfile.TemporaryDirectory(prefix="deepsets-") as folder:
            path = Path(folder) / "function"
            path.write_bytes(pickle.dumps(function))  # read once in each process, not sent with each item
            torch.set_num_threads(1)
            try:
                while waiting or again or running:
                    try:
                        feed()
                        with lock:
                            mine = [waiting.popleft()] if waiting else []
                        for item in mine:
                            yield item, function(item)
                            broken = 0
                        for future in wait(list(running), 0 if waiting else None, FIRST_COMPLETED).done:
                            result = future.result()
                            with lock:
                                item = running.pop(future)
                            yield item, result
                            broken = 0
                    except BrokenProcessPool:
                        with lock:
                            again += running.values()
                            running.clear()
                        broken += 1
                        self.close()
                        if broken == PATIENCE:
                            raise RuntimeError(
                                f"worker processes died {PATIENCE} times without finishing any part that they had "
                                f"begun ({len(again)} of them): is there enough memory? Fewer workers need less."
                            ) from None
            finally:
                waiting.clear()
                again.clear()
                torch.set_num_threads(threads)

    def close(self) -> None:
        """End the processes."""
        if self.pool is not None:
            self.pool.shutdown(wait=True, cancel_futures=True)
            self.pool = None

    def _submit(self, path: Path, item: Any) -> Future[Any]:
        if self.pool is None:
            self.pool = ProcessPoolExecutor(self.count - 1, self.context, initializer=_begin)
        return self.pool.submit(_call, str(path), item)


def _begin() -> None:
    torch.set_num_threads(1)
    keep_memory()  # a third of the time of phi and pooling went into pages that came and went with every batch
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _call(path: str, item: Any) -> Any:
    global _function  # noqa: PLW0603  # read once for all items of a run
    if _function[0] != path:
        _function = path, pickle.loads(Path(path).read_bytes())
    return _function[1](item)
