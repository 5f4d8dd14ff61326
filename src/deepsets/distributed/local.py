"""The engine inside: processes of this machine, one thread each."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch

from ..train import keep_memory
from .worker_processes import workers_context

PATIENCE = 5  # pools in a row that may break before a part is finished

_worker: tuple[str, Any] = "", None  # of this process


class Local:
    """Does the parts of a work. A process that dies is replaced, and what it had in hand is done again."""

    def __init__(self, workers: int | None) -> None:
        self.workers, self.told = workers or _cores(), workers is not None
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Local:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=error is None, cancel_futures=True)

    def run(self, worker: Any, args: tuple[Any, ...], items: Sequence[Any], few: bool = False) -> Iterator[Any]:
        """Answers of `worker(*args)(item)` for all items.

        With one worker, or one item, this process does it; also where there is little to do and nothing is told.
        """
        if min(self.workers, len(items)) <= 1 or (few and not self.told):
            do = worker(*args) if items else None
            for item in items:
                yield do(item)  # type: ignore[misc]
            return
        with tempfile.TemporaryDirectory(prefix="deepsets-") as folder:
            path = Path(folder) / "worker"
            path.write_bytes(pickle.dumps((worker, args)))  # read once in each process, not sent with each item
            yield from self._all(str(path), items)

    def _all(self, path: str, items: Sequence[Any]) -> Iterator[Any]:
        left = dict(enumerate(items))
        broken = 0
        while left:
            before = len(left)
            if self._pool is None:
                self._pool = ProcessPoolExecutor(min(self.workers, before), workers_context(), initializer=_begin)
            died = False
            try:
                futures = {number: self._pool.submit(_do, path, item) for number, item in left.items()}
            except BrokenProcessPool:
                futures, died = {}, True
            for number, future in futures.items():
                try:
                    answer = future.result()
                except BrokenProcessPool:
                    died = True
                    continue
                del left[number]
                yield answer
            if died:
                self._pool.shutdown(wait=True)
                self._pool = None
            broken = 0 if len(left) < before else broken + 1
            if broken == PATIENCE:
                raise RuntimeError(
                    f"worker processes died {PATIENCE} times without finishing one of the {len(left)} parts that are "
                    "left: is there enough memory? Fewer workers need less."
                )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


def _do(path: str, item: Any) -> Any:
    global _worker  # noqa: PLW0603  # made once for all items of a run
    if _worker[0] != path:
        kind, args = pickle.loads(Path(path).read_bytes())
        _worker = path, kind(*args)
    return _worker[1](item)
