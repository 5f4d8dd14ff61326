"""Queries that come together are answered together: one queue, one call of a model at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from .limits import Limits, Refused

Answer = Callable[[list[Any]], list[Any]]  # questions of one kind to their answers


class _Job(NamedTuple):
    kind: Hashable
    most: int
    answer: Answer
    question: Any
    future: asyncio.Future[Any]


class Batching:
    """Gathers questions of one kind, and has a thread answer them in one call.

    `await ask(kind, most, answer, question)` gives `answer([..., question, ...])[...]`, of at most `most` questions. A
    question whose asker was cancelled is dropped. Nobody waits while nothing is under way: a question that comes alone
    is answered at once. Where the last ones came together, `limits.gather` seconds are given to those that come next.
    """

    def __init__(self, limits: Limits, seen: Callable[[int, float], None] = lambda count, seconds: None) -> None:
        """seen: told the number of questions and the seconds of each call."""
        self._limits, self._seen = limits, seen
        self._waiting: deque[_Job] = deque()
        self._woken = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="deepsets-model")

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, kind: Hashable, most: int, answer: Answer, question: Any) -> Any:
        if len(self._waiting) >= self._limits.queue:
            self._drop()
        if len(self._waiting) >= self._limits.queue:
            raise Refused(
                429, f"{len(self)} requests wait already, no more are taken: try again.", {"retry-after": "1"}
            )
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(_Job(kind, most, answer, question, future))
        self._woken.set()
        return await future

    async def work(self) -> None:
        """Runs until it is cancelled."""
        loop, together = asyncio.get_running_loop(), False
        try:
            while True:
                while not self._waiting:
                    self._woken.clear()
                    await self._woken.wait()
                if together and len(self._waiting) < self._limits.batch:
                    await asyncio.sleep(self._limits.gather)
                batch = self._take()
                if not batch:
                    continue
                start = loop.time()
                found = await loop.run_in_executor(self._thread, _answers, batch)
                self._seen(len(batch), loop.time() - start)
                for job, answer in zip(batch, found, strict=True):
                    if job.future.done():
                        continue
                    if isinstance(answer, Exception):
                        job.future.set_exception(answer)
                    else:
                        job.future.set_result(answer)
                together = len(batch) + len(self._waiting) > 1
        finally:
            self._thread.shutdown()

    def _drop(self) -> None:
        self._waiting = deque(job for job in self._waiting if not job.future.done())

    def _take(self) -> list[_Job]:
        """The first that waits, and others of its kind; the rest keeps its order."""
        self._drop()
        batch: list[_Job] = []
        rest: deque[_Job] = deque()
        for job in self._waiting:
            fits = not batch or (job.kind == batch[0].kind and len(batch) < batch[0].most)
            (batch if fits else rest).append(job)
        self._waiting = rest
        return batch


def _answers(batch: list[_Job]) -> list[Any]:
    """An answer or an exception for each: where the call fails, each is asked alone, so that one spoils no other."""
    try:
        return batch[0].answer([job.question for job in batch])
    except Exception as error:
        if len(batch) == 1:
            return [error]
        return [_answers([job])[0] for job in batch]
