"""Middleware in front of every route: authorisation, security headers, metrics and access log."""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import time
import traceback
from collections.abc import Sized
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.responses import Response

from .schema import RequestError

log = logging.getLogger("deepsets.serve")

OPEN = ("/healthz", "/readyz", "/")  # these, and the files of the page, need no token
PAGE = "/page"
HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """Prometheus metrics: requests by route and status, their duration, the size of model calls, the queue."""

    def __init__(self) -> None:
        self.registry = all_of = CollectorRegistry()
        self._requests = Counter("deepsets_requests", "Requests", ["route", "status"], registry=all_of)
        self._seconds = Histogram(
            "deepsets_request_seconds", "Duration of requests", ["route"], buckets=_SECONDS, registry=all_of
        )
        self._batch = Histogram(
            "deepsets_batch_size", "Questions per model call", buckets=(1, 2, 4, 8, 16, 32, 64), registry=all_of
        )
        self._calls = Histogram("deepsets_call_seconds", "Duration of model calls", buckets=_SECONDS, registry=all_of)
        self._queue = Gauge("deepsets_queue", "Requests waiting for a model", registry=all_of)

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


class Middleware:
    """ASGI middleware that checks a request before the application sees it.

    Parameters
    ----------
    app : ASGI application
        The application.
    token : str or None
        Required as ``Authorization: Bearer TOKEN`` by everything except health checks and the page. Without a token
        only requests addressed to a loopback name are answered, so that no web site can reach the service under a
        name of its own (DNS rebinding).
    routes : frozenset of str
        Known paths; others are logged as ``-``.
    metrics : Metrics
        Called for each request.
    """

    def __init__(self, app: Any, token: str | None, routes: frozenset[str], metrics: Metrics) -> None:
        self.app, self.routes, self.metrics = app, routes, metrics
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, size, path = time.perf_counter(), 0, 0, scope["path"]
        page = path == "/" or path.startswith(f"{PAGE}/")
        more = HEADERS | {"cache-control": "no-cache" if page else "no-store"}

        async def answer(message: Any) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *((n.encode(), v.encode()) for n, v in more.items())]
            size += len(message.get("body", b""))
            await send(message)

        try:
            self._check(scope, page)
            await self.app(scope, receive, answer)
        except RequestError as error:
            await error_response(error)(scope, receive, answer)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            # What failed and where, never the contents of the request.
            log.error({"error": type(error).__name__, "where": f"{where.filename}:{where.lineno}"})
            if not status:
                refused = RequestError(500, "internal error; the log of the server says where.")
                await error_response(refused)(scope, receive, answer)
        finally:
            seconds = time.perf_counter() - start
            route = path if path in self.routes else PAGE if page else "-"
            self.metrics.request(route, status, seconds)
            method = scope["method"] if scope["method"].isalpha() else "-"
            milliseconds = round(1e3 * seconds, 2)
            log.info({"method": method, "route": route, "status": status, "ms": milliseconds, "bytes": size})

    def _check(self, scope: Any, page: bool) -> None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            raise RequestError(400, f"a request needs exactly one Host header, found {len(hosts)}.")
        if self._token is None:
            if not is_loopback(_host_name(hosts[0].decode("latin-1"))):
                raise RequestError(421, "without a token this server answers only under a loopback name.")
        elif scope["path"] not in OPEN and not page:
            scheme, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._token):
                needed = {"www-authenticate": "Bearer"}
                raise RequestError(401, "a token is required, as `Authorization: Bearer …`.", needed)


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    encoded = text.encode("utf-8", "backslashreplace")  # a lone surrogate has no UTF-8 form
    return Response(encoded, status, headers, "application/json")


def error_response(error: RequestError) -> Response:
    """The response to a request that is refused."""
    return json_response({"error": error.message}, error.status, error.headers)


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine only, such as ``localhost``, ``127.0.0.1`` and ``::1``."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _host_name(header: str) -> str:
    """The host of a Host header, without its port."""
    return header.partition("]")[0] + "]" if header.startswith("[") else header.rsplit(":", 1)[0]
