"""Medians of interleaved repeats, on an idle machine and on a busy one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

LOADS = ("idle", "busy")
SHORT, BURST = 0.02, 5


@contextmanager
def machine(load: str) -> Iterator[None]:
    """Keep all cores busy with one process each ("busy"), or not ("idle"). The processes end with the block."""
    count = len(os.sched_getaffinity(0)) if load == "busy" else 0
    spin = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100000))"
    busy = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(count)]
    try:
        time.sleep(0.3 if busy else 0)
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def compare(
    ways: dict[str, Callable[[], object]], seconds: float = 2.0, repeats: int = 100, warmup: int = 2
) -> dict[str, float]:
    """Measure the median seconds of each way; the ways take turns, so that a slow moment is slow for all.

    The order of a turn is random. In a turn a way below `SHORT` seconds is called once without being measured, and then
    `BURST` times: otherwise it would find the caches and threads as the way before it has left them. Turns end after
    about `seconds`, but not before the third.
    """
    order, found = list(ways), {name: list[float]() for name in ways}
    for _ in range(warmup):
        for way in ways.values():
            way()
    shuffle, began = random.Random(0).shuffle, time.perf_counter()
    for turn in range(repeats):
        if turn >= 3 and time.perf_counter() - began > seconds:
            break
        shuffle(order)
        for name in order:
            short = turn and min(found[name]) < SHORT
            if short:
                ways[name]()
            for _ in range(BURST if short else 1):
                start = time.perf_counter()
                ways[name]()
                found[name].append(time.perf_counter() - start)
    return {name: median(times) for name, times in found.items()}


def versus(
    case: str, ways: dict[str, Callable[[], object]], ours: str = "deepsets", **options: float
) -> list[dict[str, object]]:
    """Compare on an idle and on a busy machine: one row per opponent and load."""
    rows: list[dict[str, object]] = []
    for load in LOADS:
        with machine(load):
            seconds = compare(ways, **options)  # type: ignore[arg-type]
        rows += [
            {"case": case, "load": load, "way": name, "ms": 1e3 * s, "ours is faster by": s / seconds[ours]}
            for name, s in seconds.items()
        ]
    return rows
