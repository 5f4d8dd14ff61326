"""Middleware in front of every route: authorisation, size and time limits, security headers, access log."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import time
import traceback
from collections.abc import Callable
from typing import Any

from .limits import Limits, RequestError

log = logging.getLogger("deepsets.serve")

Scope = dict[str, Any]
OPEN = ("/healthz", "/readyz")  # besides the page, these need no token
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
_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


class Middleware:
    """ASGI middleware that checks a request before the application sees it.

    Parameters
    ----------
    app : ASGI application
        The application.
    limits : Limits
        Size and time limits.
    token : str or None
        Required as ``Authorization: Bearer TOKEN`` by everything except health checks and the page. Without a token
        only requests addressed to a loopback name are answered, so that no web site can reach the service under a
        name of its own (DNS rebinding).
    page : frozenset of str
        Paths of the page.
    routes : frozenset of str
        Known paths; others are logged as ``-``.
    observe : callable
        Called with the route, status and seconds of each request.
    """

    def __init__(
        self,
        app: Any,
        limits: Limits,
        token: str | None,
        page: frozenset[str],
        routes: frozenset[str],
        observe: Callable[[str, int, float], None],
    ) -> None:
        self.app, self.limits, self.page, self.routes, self.observe = app, limits, page, routes, observe
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, response = time.perf_counter(), _Response(send)
        try:
            self._check(scope)
            if scope["method"] == "POST":
                await self._post(scope, receive, response)
            else:
                await self.app(scope, receive, response)
        except RequestError as error:
            await response.refuse(error)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            # What failed and where, never the contents of the request.
            log.error({"error": type(error).__name__, "where": f"{where.filename}:{where.lineno}"})
            await response.refuse(RequestError(500, "internal error; the log of the server says where."))
        finally:
            route, seconds = self._route(scope), time.perf_counter() - start
            self.observe(route, response.status, seconds)
            log.info(
                {
                    "method": scope["method"] if scope["method"].isalpha() else "-",
                    "route": route,
                    "status": response.status,
                    "ms": round(1e3 * seconds, 2),
                    "bytes": response.bytes,
                }
            )

    def _route(self, scope: Scope) -> str:
        path = scope["path"]
        return path if path in self.routes or path in self.page else "-"

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            raise RequestError(400, f"a request needs exactly one Host header, found {len(hosts)}.")
        if self._token is None:
            if not is_loopback(_host_name(hosts[0].decode("latin-1"))):
                raise RequestError(421, "without a token this server answers only under a loopback name.")
        elif scope["path"] not in OPEN and scope["path"] not in self.page:
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._token):
                raise RequestError(
                    401, "a token is required, as `Authorization: Bearer …`.", {"www-authenticate": "Bearer"}
                )

    async def _post(self, scope: Scope, receive: Any, response: _Response) -> None:
        """Read the body, then run the application; cancel it on timeout or when the client disconnects."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.limits.timeout
        body = await self._body(receive, response, end)
        if body is None:
            return
        sent = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> dict[str, Any]:
            return next(sent, {"type": "http.disconnect"})

        work = asyncio.ensure_future(self.app(scope, replay, response))
        left = asyncio.ensure_future(_disconnect(receive))
        try:
            await asyncio.wait((work, left), timeout=end - loop.time(), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            elif left.done():
                response.left()
            else:
                raise RequestError(504, f"no answer within {self.limits.timeout:g} seconds.")
        finally:
            left.cancel()
            work.cancel()

    async def _body(self, receive: Any, response: _Response, end: float) -> bytes | None:
        """The body, or None if the client disconnected.

        Of a body that is too large some more is read, so that a client that is still sending sees the response.
        """
        parts: list[bytes] = []
        size, most = 0, self.limits.body
        try:
            async with asyncio.timeout_at(end):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        response.left()
                        return None
                    size += len(message.get("body", b""))
                    if size <= most:
                        parts.append(message.get("body", b""))
                    if size > 8 * most or not message.get("more_body", False):
                        break
        except TimeoutError:
            message = f"the body did not arrive within {self.limits.timeout:g} seconds."
            raise RequestError(408, message, {"connection": "close"}) from None
        if size > most:
            raise RequestError(413, f"the body is larger than {most} bytes.", {"connection": "close"})
        return b"".join(parts)


class _Response:
    """`send` that adds security headers and records status and size."""

    def __init__(self, send: Any) -> None:
        self.send, self.status, self.bytes = send, 0, 0

    async def __call__(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], *_HEADERS]
        else:
            self.bytes += len(message.get("body", b""))
        await self.send(message)

    async def refuse(self, error: RequestError) -> None:
        if self.status:  # the response has started and cannot be replaced
            return
        body = json.dumps({"error": error.message}, ensure_ascii=False).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **error.headers}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self({"type": "http.response.start", "status": error.status, "headers": pairs})
        await self({"type": "http.response.body", "body": body})

    def left(self) -> None:
        """The client went away before its response."""
        self.status = self.status or 499


async def _disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine only.

    Parameters
    ----------
    host : str
        A name or an IP address.

    Returns
    -------
    bool
        True for ``localhost`` and addresses such as ``127.0.0.1`` and ``::1``.
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _host_name(header: str) -> str:
    """The host of a Host header, without its port."""
    return header.partition("]")[0] + "]" if header.startswith("[") else header.rsplit(":", 1)[0]
