"""Scheduling of model calls: requests of one kind share a call, expensive ones cannot delay cheap ones."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from .limits import Limits, RequestError

Call = Callable[[list[Any]], list[Any]]  # questions of one kind -> their answers, in one call of the model

_UNKNOWN_UNITS = 16.0  # without a measurement, a request of more units counts as expensive
_QUICK_SECONDS = 0.05  # a call that is expected to take longer counts as expensive


@dataclass
class Job:
    """A request that waits for a model.

    Parameters
    ----------
    kind : Hashable
        Jobs of one kind may share a call.
    call : callable
        Answers a list of questions.
    question : object
        The input of this job.
    units : float
        Amount of work, in whatever unit the kind uses (members, queries).
    client : Hashable
        Who asked.
    max_batch : int
        Largest number of questions in one call.
    """

    kind: Hashable
    call: Call
    question: Any
    units: float = 1.0
    client: Hashable = None
    max_batch: int = 1
    future: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Lane:
    """Waiting jobs, one queue per client; the clients take turns."""

    def __init__(self) -> None:
        self._queues: OrderedDict[Hashable, deque[Job]] = OrderedDict()
        self.arrived = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def counts(self) -> Counter[Hashable]:
        """Number of waiting jobs per client."""
        return Counter({client: len(queue) for client, queue in self._queues.items()})

    def put(self, job: Job) -> None:
        """Append a job to the queue of its client."""
        self._queues.setdefault(job.client, deque()).append(job)
        self.arrived.set()

    def drop_cancelled(self) -> None:
        """Forget jobs nobody waits for any more."""
        for client, queue in list(self._queues.items()):
            kept = deque(job for job in queue if not job.future.done())
            if kept:
                self._queues[client] = kept
            else:
                del self._queues[client]

    def take(self) -> list[Job]:
        """Remove the next job, and others of its kind that may share its call."""
        self.drop_cancelled()
        if not self._queues:
            self.arrived.clear()
            return []
        client = next(iter(self._queues))
        batch = [self._queues[client].popleft()]
        self._queues.move_to_end(client)
        first = batch[0]
        for queue in self._queues.values():
            matching = [job for job in queue if job.kind == first.kind][: first.max_batch - len(batch)]
            for job in matching:
                queue.remove(job)
            batch += matching
        self.drop_cancelled()
        return batch


class Scheduler:
    """Runs model calls in two threads, one for quick calls and one for expensive ones.

    How long a call will take is estimated from the calls of the same kind before it. A request that is expected to
    exceed the time limit is refused at once. Requests that nobody waits for any more are dropped. A request that comes
    alone is answered immediately; when the previous ones came together, the thread waits `limits.gather` seconds for
    others that can share the call.

    Parameters
    ----------
    limits : Limits
        Length of the queue, batch size, timeout.
    observe : callable, optional
        Called with the number of questions and the seconds of each model call.
    """

    def __init__(self, limits: Limits, observe: Callable[[int, float], None] = lambda count, seconds: None) -> None:
        self._limits, self._observe = limits, observe
        self._lanes = {"quick": Lane(), "expensive": Lane()}
        self._seconds_per_unit: dict[Hashable, float] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def estimate(self, kind: Hashable, units: float) -> float | None:
        """Expected seconds of a request, or None before the first of its kind."""
        rate = self._seconds_per_unit.get(kind)
        return None if rate is None else rate * units

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
        """Queue a question and wait for its answer."""
        expected = self.estimate(kind, units)
        if expected is not None and expected > self._limits.timeout:
            raise RequestError(
                413,
                f"the request would take about {expected:.0f} seconds, more than the limit of "
                f"{self._limits.timeout:g}: send fewer elements.",
            )
        expensive = units > _UNKNOWN_UNITS if expected is None else expected > _QUICK_SECONDS
        lane = self._lanes["expensive" if expensive else "quick"]
        self._admit(lane, client)
        job = Job(kind, call, question, units, client, max_batch)
        lane.put(job)
        return await job.future

    def _admit(self, lane: Lane, client: Hashable) -> None:
        """Refuse a job if the queue is full; one client may fill at most half of it while others wait."""
        if len(lane) >= self._limits.queue // 2:
            lane.drop_cancelled()
        waiting, counts = len(lane), lane.counts()
        crowding = counts[client] >= max(1, self._limits.queue // 2) and len(counts) > 1
        if waiting >= self._limits.queue or crowding:
            raise RequestError(429, f"{waiting} requests are waiting already: try again later.", {"retry-after": "1"})

    async def run(self) -> None:
        """Answer jobs until cancelled."""
        with ThreadPoolExecutor(len(self._lanes), thread_name_prefix="deepsets-model") as threads:
            await asyncio.gather(*(self._run_lane(lane, threads) for lane in self._lanes.values()))

    async def _run_lane(self, lane: Lane, threads: ThreadPoolExecutor) -> None:
        loop, together = asyncio.get_running_loop(), False
        while True:
            await lane.arrived.wait()
            if together and len(lane) < self._limits.batch:
                await asyncio.sleep(self._limits.gather)
            batch = lane.take()
            if not batch:
                continue
            start = loop.time()
            answers = await loop.run_in_executor(threads, _answers, batch)
            seconds = loop.time() - start
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
        found = seconds / max(sum(job.units for job in batch), 1e-9)
        kind = batch[0].kind
        before = self._seconds_per_unit.get(kind, found)
        self._seconds_per_unit[kind] = 0.8 * before + 0.2 * found


def _answers(batch: list[Job]) -> list[Any]:
    """An answer or an exception per job. If a shared call fails, each question is asked alone."""
    batch_open = [job for job in batch if not job.future.done()]
    if not batch_open:
        return [None] * len(batch)
    try:
        found = dict(zip(map(id, batch_open), batch_open[0].call([job.question for job in batch_open]), strict=True))
    except Exception as error:
        if len(batch_open) == 1:
            found = {id(batch_open[0]): error}
        else:
            found = {id(job): _answers([job])[0] for job in batch_open}
    return [found.get(id(job)) for job in batch]
