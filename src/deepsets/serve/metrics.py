"""Counters for Prometheus."""

from __future__ import annotations

from collections.abc import Sized

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """Requests by route and status, their seconds, questions a call of a model answers, and how many wait."""

    kind = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter("deepsets_requests", "Requests", ["route", "status"], registry=self._registry)
        self._seconds = Histogram(
            "deepsets_request_seconds", "Time of requests", ["route"], buckets=_SECONDS, registry=self._registry
        )
        self._batch = Histogram(
            "deepsets_batch_size",
            "Questions in a call of a model",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=self._registry,
        )
        self._calls = Histogram(
            "deepsets_call_seconds", "Time of calls of a model", buckets=_SECONDS, registry=self._registry
        )
        self._queue = Gauge("deepsets_queue", "Questions that wait", registry=self._registry)

    def watch(self, queue: Sized) -> None:
        self._queue.set_function(lambda: len(queue))

    def request(self, route: str, status: int, seconds: float) -> None:
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def call(self, count: int, seconds: float) -> None:
        self._batch.observe(count)
        self._calls.observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self._registry)
