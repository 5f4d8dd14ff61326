"""Scheduling of model calls: requests of one kind share a call, expensive ones cannot delay cheap ones."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from .schema import Limits, RequestError

Call = Callable[[list[Any]], list[Any]]  # questions of one kind -> their answers, in one call of the model

_BATCH_UNITS = 64.0  # in a call that requests share: large ones, which need memory in proportion, are answered alone
_UNKNOWN_UNITS = 16.0  # without a measurement, a request of more units counts as expensive
_QUICK_SECONDS = 0.05  # a call that is expected to take longer counts as expensive


@dataclass
class Job:
    """A request that waits for a model; jobs of one kind may share a call."""

    kind: Hashable
    call: Call
    question: Any
    units: float
    max_batch: int
    seconds: float  # expected; 0 where nothing is known
    future: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Lane:
    """Waiting jobs, one queue per client; the clients take turns."""

    def __init__(self) -> None:
        self._queues: OrderedDict[Hashable, deque[Job]] = OrderedDict()
        self.arrived = asyncio.Event()
        self.running = 0.0  # expected seconds of the call that runs

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def put(self, job: Job, client: Hashable, limits: Limits) -> None:
        """Append a job, unless the queue is full, half full of this client, or too long for an answer in time."""
        self._drop_cancelled()
        waiting, own, most = len(self), len(self._queues.get(client, ())), limits.queue
        seconds = self.running + sum(job.seconds for queue in self._queues.values() for job in queue)
        late = job.seconds > 0 and seconds + job.seconds > limits.timeout
        if late or waiting >= most or (own >= max(1, most // 2) and own < waiting):
            retry = {"retry-after": str(max(1, round(seconds)))}
            raise RequestError(429, f"{waiting} requests are waiting already: try again later.", retry)
        self._queues.setdefault(client, deque()).append(job)
        self.arrived.set()

    def take(self) -> list[Job]:
        """Remove the next job, and others of its kind that may share its call."""
        self._drop_cancelled()
        if not self._queues:
            self.arrived.clear()
            return []
        client = next(iter(self._queues))
        first = self._queues[client].popleft()
        self._queues.move_to_end(client)
        batch, units = [first], first.units
        for queue in self._queues.values():
            for job in [job for job in queue if job.kind == first.kind]:
                if len(batch) < first.max_batch and units + job.units <= _BATCH_UNITS:
                    queue.remove(job)
                    batch.append(job)
                    units += job.units
        return batch

    def _drop_cancelled(self) -> None:
        """Forget jobs nobody waits for any more, and clients without jobs."""
        for client, queue in list(self._queues.items()):
            self._queues[client] = deque(job for job in queue if not job.future.done())
            if not self._queues[client]:
                del self._queues[client]


class Scheduler:
    """Runs model calls in two threads, one for quick calls and one for expensive ones.

    How long a call will take is estimated from the fastest call of the same kind before it, not counting the first,
    which may include a warm-up. A request that is expected to exceed the time limit, by itself or behind those that
    wait, is refused at once. Requests that nobody waits for any more are dropped. A request that comes alone is
    answered immediately; when the previous ones came together, the thread waits `limits.gather` seconds for others
    that can share the call.
    """

    def __init__(self, limits: Limits, observe: Callable[[int, float], None] = lambda count, seconds: None) -> None:
        self._limits, self._observe = limits, observe
        self._quick, self._expensive = Lane(), Lane()
        self._seconds_per_unit: dict[Hashable, float | None] = {}

    def __len__(self) -> int:
        return len(self._quick) + len(self._expensive)

    async def submit(
        self,
        kind: Hashable,
        call: Call,
        question: Any,
        *,
        units: float = 1.0,
        client: Hashable = None,
        max_batch: int = 1,
    ) -> Any:
        """Queue a question of `units` of work and wait for its answer."""
        rate = self._seconds_per_unit.get(kind)
        seconds = 0.0 if rate is None else rate * units
        if seconds > self._limits.timeout:
            raise RequestError(
                413,
                f"the request would take about {seconds:.0f} seconds, more than the limit of "
                f"{self._limits.timeout:g}: send fewer elements.",
            )
        expensive = units > _UNKNOWN_UNITS if rate is None else seconds > _QUICK_SECONDS
        job = Job(kind, call, question, units, max_batch, seconds)
        (self._expensive if expensive else self._quick).put(job, client, self._limits)
        return await job.future

    async def run(self) -> None:
        """Answer jobs until cancelled."""
        with ThreadPoolExecutor(2, thread_name_prefix="deepsets-model") as threads:
            await asyncio.gather(*(self._run_lane(lane, threads) for lane in (self._quick, self._expensive)))

    async def _run_lane(self, lane: Lane, threads: ThreadPoolExecutor) -> None:
        loop, together = asyncio.get_running_loop(), False
        while True:
            await lane.arrived.wait()
            if together and len(lane) < self._limits.batch:
                await asyncio.sleep(self._limits.gather)
            batch = lane.take()
            if not batch:
                continue
            start, lane.running = loop.time(), sum(job.seconds for job in batch)
            answers = await loop.run_in_executor(threads, _answers, batch)
            seconds, lane.running = loop.time() - start, 0.0
            self._learn(batch, seconds)
            self._observe(len(batch), seconds)
            for job, answer in zip(batch, answers, strict=True):
                if job.future.done():
                    continue
                if isinstance(answer, Exception):
                    job.future.set_exception(answer)
                else:
                    job.future.set_result(answer)
            together = len(batch) + len(lane) > 1

    def _learn(self, batch: list[Job], seconds: float) -> None:
        kind, rate = batch[0].kind, seconds / sum(job.units for job in batch)
        first = kind not in self._seconds_per_unit
        self._seconds_per_unit[kind] = None if first else min(self._seconds_per_unit[kind] or rate, rate)


def _answers(batch: list[Job]) -> list[Any]:
    """An answer or an exception per job. If a shared call fails, each question is asked alone."""
    try:
        return batch[0].call([job.question for job in batch])
    except Exception as error:
        return [error] if len(batch) == 1 else [_answers([job])[0] for job in batch]
