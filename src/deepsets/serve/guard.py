"""What stands before every route: who may ask, how much may come in, how long it may take, and what is written down."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
import traceback
from collections.abc import Callable
from typing import Any

from .limits import Limits, Refused

log = logging.getLogger("deepsets.serve")

Scope = dict[str, Any]
OPEN = ("/healthz", "/readyz")  # and the page: these need no token
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
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


class Guard:
    """An ASGI app around another one.

    token: wanted by everything but health and the page, as `Authorization: Bearer`. Without one only requests to a
    loopback name are answered, so that no web site can reach the server under a name of its own (DNS rebinding).
    seen: told the route, status and seconds of each request.
    """

    def __init__(
        self,
        app: Any,
        limits: Limits,
        token: str | None,
        page: frozenset[str],
        routes: frozenset[str],
        seen: Callable[[str, int, float], None],
    ) -> None:
        self.app, self.limits, self.page, self.routes, self.seen = app, limits, page, routes, seen
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, answer = time.perf_counter(), _Answer(send)
        try:
            self._check(scope)
            if scope["method"] == "POST":
                await self._post(scope, receive, answer)
            else:
                await self.app(scope, receive, answer)
        except Refused as refused:
            await answer.refuse(refused)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            log.error({"error": type(error).__name__, "where": f"{where.filename}:{where.lineno}"})  # no contents
            await answer.refuse(Refused(500, "something broke inside the server; its log says where."))
        finally:
            route, seconds = self._route(scope), time.perf_counter() - start
            self.seen(route, answer.status, seconds)
            log.info(
                {
                    "method": scope["method"] if scope["method"].isalpha() else "-",
                    "route": route,
                    "status": answer.status,
                    "ms": round(1e3 * seconds, 2),
                    "bytes": answer.bytes,
                }
            )

    def _route(self, scope: Scope) -> str:
        path = scope["path"]
        return path if path in self.routes or path in self.page else "-"

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if self._token is None:
            name = headers.get(b"host", b"localhost").decode("latin-1").rsplit(":", 1)[0]
            if name not in LOOPBACK:
                raise Refused(421, "this server has no token, so it answers only under a loopback name.")
        elif scope["path"] not in OPEN and scope["path"] not in self.page:
            kind, _, given = headers.get(b"authorization", b"").partition(b" ")
            if kind.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._token):
                raise Refused(401, "a token is wanted, as `Authorization: Bearer …`.", {"www-authenticate": "Bearer"})

    async def _post(self, scope: Scope, receive: Any, answer: _Answer) -> None:
        """Reads the body, then runs the app, which is cancelled when its time is over or nobody waits any more."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.limits.timeout
        body = await self._body(receive, answer, end)
        if body is None:
            return
        sent = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> dict[str, Any]:
            return next(sent, {"type": "http.disconnect"})

        work = asyncio.ensure_future(self.app(scope, replay, answer))
        left = asyncio.ensure_future(_disconnect(receive))
        try:
            await asyncio.wait((work, left), timeout=end - loop.time(), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            elif left.done():
                answer.left()
            else:
                raise Refused(504, f"no answer was found within {self.limits.timeout:g} seconds.")
        finally:
            left.cancel()
            work.cancel()

    async def _body(self, receive: Any, answer: _Answer, end: float) -> bytes | None:
        """What was sent, or None if the client left. Of what is too long as much is read as a client may have under
        way, so that it gets to see the answer.
        """
        parts: list[bytes] = []
        size, most = 0, self.limits.body
        try:
            async with asyncio.timeout_at(end):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        answer.left()
                        return None
                    size += len(message.get("body", b""))
                    if size <= most:
                        parts.append(message.get("body", b""))
                    if size > 8 * most or not message.get("more_body", False):
                        break
        except TimeoutError:
            sentence = f"the body did not arrive within {self.limits.timeout:g} seconds."
            raise Refused(408, sentence, {"connection": "close"}) from None
        if size > most:
            raise Refused(413, f"the body is larger than {most} bytes.", {"connection": "close"})
        return b"".join(parts)


class _Answer:
    """`send` that adds the headers, and knows what was sent."""

    def __init__(self, send: Any) -> None:
        self.send, self.status, self.bytes = send, 0, 0

    async def __call__(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], *_HEADERS]
        else:
            self.bytes += len(message.get("body", b""))
        await self.send(message)

    async def refuse(self, refused: Refused) -> None:
        if self.status:  # an answer is under way: it cannot be taken back
            return
        body = json.dumps({"error": refused.sentence}, ensure_ascii=False).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **refused.headers}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self({"type": "http.response.start", "status": refused.status, "headers": pairs})
        await self({"type": "http.response.body", "body": body})

    def left(self) -> None:
        """The client went away before its answer."""
        self.status = self.status or 499


async def _disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
