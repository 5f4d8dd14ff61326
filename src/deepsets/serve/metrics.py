"""Prometheus metrics of the service."""

from __future__ import annotations

from collections.abc import Sized

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """Counts requests by route and status, their duration, the size of model calls and the length of the queue."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("deepsets_requests", "Requests", ["route", "status"], registry=registry)
        self._seconds = Histogram(
            "deepsets_request_seconds", "Duration of requests", ["route"], buckets=_SECONDS, registry=registry
        )
        self._batch = Histogram(
            "deepsets_batch_size", "Questions per model call", buckets=(1, 2, 4, 8, 16, 32, 64), registry=registry
        )
        self._calls = Histogram("deepsets_call_seconds", "Duration of model calls", buckets=_SECONDS, registry=registry)
        self._queue = Gauge("deepsets_queue", "Requests waiting for a model", registry=registry)

    def watch(self, queue: Sized) -> None:
        """Report the length of a queue."""
        self._queue.set_function(lambda: len(queue))

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def call(self, count: int, seconds: float) -> None:
        """Count a model call that answered `count` questions."""
        self._batch.observe(count)
        self._calls.observe(seconds)

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
