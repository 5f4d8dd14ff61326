"""The server around the app: where it listens, how it waits for slow clients, how it ends."""

from __future__ import annotations

import ipaddress
import json
import logging
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .app import create_app
from .limits import Limits
from .models import Served

_LEAST_TOKEN = 16
_MOST_HEAD = 1 << 16


def serve(
    models: Sequence[Served],
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    cors: Sequence[str] = (),
    listening: Callable[[str], None] = lambda url: None,
) -> None:
    """Serves until SIGTERM or SIGINT; then no more is accepted, what is under way is finished, and it returns.

    port: 0 takes a free one. listening: told the address when requests are accepted. Each request is logged as a line
    of JSON by the logger `deepsets.serve`, without what it holds.
    """
    check_address(host, token)
    limits = limits or Limits()
    app = create_app(models, limits, token=token, cors=cors)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=2048) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or a second write waits 40 ms for an answer
        config = uvicorn.Config(
            app,
            http=_protocol(limits.headers),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(limits.timeout) + 5,
        )
        name = f"[{host}]" if ":" in host else host
        listening(f"http://{name}:{listener.getsockname()[1]}/")
        # uvicorn raises the signal again when it is done; what was there before it decides how the process ends.
        before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            uvicorn.Server(config).run(sockets=[listener])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def check_address(host: str, token: str | None) -> None:
    """Beyond this machine only with a token, and a token that cannot be guessed."""
    if token is not None and (len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable()):
        raise ValueError(f"the token must have at least {_LEAST_TOKEN} characters, of ASCII; found {len(token)}.")
    if token is None and not _is_loopback(host):
        raise ValueError(
            f"{host} can be reached from other machines: give a token (--token-file, $DEEPSETS_TOKEN), or listen on "
            "127.0.0.1."
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _protocol(seconds: float) -> type[HttpToolsProtocol]:
    """HTTP/1.1 that closes a connection whose next request has not come with all its headers after some seconds."""

    class Impatient(HttpToolsProtocol):
        _timer: Any = None
        _head = 0  # bytes

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(seconds, transport.abort)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:  # the headers are here
                self._stop()
                return
            self._head += len(data)
            if self._head > _MOST_HEAD:
                self.transport.abort()
            if self._timer is None:
                self._timer = self.loop.call_later(seconds, self.transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def _stop(self) -> None:
            self._head = 0
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Impatient


class JsonLines(logging.Formatter):
    """A record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.msg if isinstance(record.msg, dict) else {"message": record.getMessage()}
        head = {"time": time.strftime("%FT%TZ", time.gmtime(record.created)), "level": record.levelname.lower()}
        return json.dumps(head | message, ensure_ascii=False)
