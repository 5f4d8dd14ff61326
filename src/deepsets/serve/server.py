"""The server process: where it listens, how it treats slow clients, how it stops."""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import signal
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .app import create_app
from .middleware import is_loopback
from .models import Served
from .schema import Limits

_MIN_TOKEN = 16
_MAX_HEADER_BYTES = 1 << 16
_RESERVED_FILES = 64  # descriptors kept for everything but connections


def serve(
    models: Sequence[Served],
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    listening: Callable[[str], None] = lambda url: None,
    **options: Any,
) -> None:
    """Serve models over HTTP until SIGTERM or SIGINT; requests in progress are completed first.

    Each request is logged as one line of JSON by the logger ``deepsets.serve``, without its contents.

    Parameters
    ----------
    models : sequence of Served
        The models; the first is the default.
    host : str, default="127.0.0.1"
        Address to listen on. Addresses that other machines can reach need a token.
    port : int, default=8000
        Port to listen on; 0 chooses a free one.
    listening : callable, optional
        Called with the URL once requests are accepted.
    **options
        Further options of `create_app`: `limits`, `token` and `cors`.
    """
    check_address(host, options.get("token"))
    app = create_app(models, **options)
    limits = options.get("limits") or Limits()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=2048) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a second write waits 40 ms
        server = _Server(
            uvicorn.Config(
                app,
                http=http_protocol(limits),
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=int(limits.timeout) + 5,
            )
        )
        # From here on a signal, however early and however often it comes, asks for the same orderly end.
        with _signals(server):
            name = f"[{host}]" if ":" in host else host
            listening(f"http://{name}:{listener.getsockname()[1]}/")
            if not server.should_exit:
                server.run(sockets=[listener])


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the handlers are installed before uvicorn starts, see `serve`


@contextlib.contextmanager
def _signals(server: uvicorn.Server) -> Iterator[None]:
    def stop(*_: Any) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def check_address(host: str, token: str | None) -> None:
    """Refuse an address that other machines can reach without a token, and a token that can be guessed.

    Parameters
    ----------
    host : str
        Address to listen on.
    token : str or None
        The token, at least 16 printable ASCII characters.
    """
    if token is not None and (len(token) < _MIN_TOKEN or not token.isascii() or not token.isprintable()):
        raise ValueError(
            f"the token must have at least {_MIN_TOKEN} printable ASCII characters; found {len(token)} characters."
        )
    if token is None and not is_loopback(host):
        raise ValueError(
            f"{host} can be reached from other machines: give a token (--token-file, $DEEPSETS_TOKEN), or listen on "
            "127.0.0.1."
        )


def http_protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """HTTP/1.1 for uvicorn, with what it lacks: a deadline for headers, and a bound on connections.

    `limits.headers` are the seconds for the headers of a request. When more than `limits.connections` are open, the one
    that has been idle longest is closed; if none is idle, the new one is.
    """
    most = max(1, min(limits.connections, _open_files() - _RESERVED_FILES))
    idle: OrderedDict[Any, None] = OrderedDict()
    connected: set[Any] = set()

    class Protocol(HttpToolsProtocol):
        _timer: Any = None
        _header_bytes = 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            connected.add(self)
            if len(connected) > most:
                victim = next(iter(idle), self)
                victim.transport.abort()
                idle.pop(victim, None)
            idle[self] = None
            self._timer = self.loop.call_later(limits.headers, transport.abort)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:  # the headers are complete
                self._stop_timer()
                idle.pop(self, None)
                return
            self._header_bytes += len(data)
            if self._header_bytes > _MAX_HEADER_BYTES:
                self.transport.abort()
            if self._timer is None:
                self._timer = self.loop.call_later(limits.headers, self.transport.abort)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self in connected:
                idle[self] = None

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            connected.discard(self)
            idle.pop(self, None)
            super().connection_lost(exc)

        def _stop_timer(self) -> None:
            self._header_bytes = 0
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Protocol


def _open_files() -> int:
    """How many files this process may have open."""
    try:
        import resource
    except ImportError:  # Windows
        return 8192
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class JsonFormatter(logging.Formatter):
    """Format a log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        message = record.msg if isinstance(record.msg, dict) else {"message": record.getMessage()}
        head = {"time": time.strftime("%FT%TZ", time.gmtime(record.created)), "level": record.levelname.lower()}
        return json.dumps(head | message, ensure_ascii=False)


class BackgroundHandler(logging.Handler):
    """Write log lines in a thread of its own, and drop them when the reader of the stream does not keep up.

    Warnings and errors of other loggers than ``deepsets.serve`` are written once a second each: a full table of files,
    for instance, is reported by the event loop again and again.

    Parameters
    ----------
    stream : file object
        Where the lines go. A pipe that nobody reads blocks only the thread.
    capacity : int, default=10000
        Lines that wait to be written.
    """

    def __init__(self, stream: Any, capacity: int = 10_000) -> None:
        super().__init__()
        self.stream = stream
        self._last: dict[str, float] = {}
        self._lines: queue.Queue[str | None] = queue.Queue(capacity)
        self._thread = threading.Thread(target=self._write, daemon=True, name="deepsets-log")
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line, or drop it."""
        if record.name != "deepsets.serve":
            if record.created - self._last.get(record.name, -1.0) < 1.0:
                return
            self._last[record.name] = record.created
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(self.format(record))

    def close(self) -> None:
        """Wait up to a second for the lines that are left."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)
        self._thread.join(1.0)
        super().close()

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            with contextlib.suppress(OSError, ValueError):
                self.stream.write(line + "\n")
                self.stream.flush()
