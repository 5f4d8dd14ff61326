"""Medians of interleaved repeats: what is slow at one moment is slow for all that is compared."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median


def compare(ways: dict[str, Callable[[], object]], repeats: int = 15, warmup: int = 2) -> dict[str, float]:
    """The median seconds of each way; the ways take turns."""
    for _ in range(warmup):
        for way in ways.values():
            way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - start)
    return {name: median(times) for name, times in seconds.items()}


def rows(case: str, seconds: dict[str, float], ours: str = "deepsets") -> list[dict[str, object]]:
    """One row for each opponent: how many times faster ours is."""
    return [
        {"case": case, "way": name, "ms": 1e3 * s, "ours is faster by": s / seconds[ours]}
        for name, s in seconds.items()
    ]
