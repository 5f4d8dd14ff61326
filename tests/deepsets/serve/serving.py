"""A server in a thread of the tests, and a small client."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager
from http.client import HTTPConnection

import uvicorn

from deepsets.serve import Limits, create_app
from deepsets.serve.server import http_protocol


class Client:
    def __init__(self, port: int, server: uvicorn.Server) -> None:
        self.port, self.server, self.url = port, server, f"http://127.0.0.1:{port}"

    def __call__(self, method: str, path: str, body=None, headers=None):
        """Status, headers and the body, as JSON where it is."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, data, {"content-type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        kind = answer.headers.get_content_type()
        return answer.status, answer.headers, json.loads(text) if kind == "application/json" else text.decode()

    def get(self, path: str, headers=None):
        return self("GET", path, None, headers)

    def post(self, path: str, body, headers=None):
        return self("POST", path, body, headers)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)


@contextmanager
def running(models, limits=None, **options):
    limits = limits or Limits()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    app = create_app(models, limits, **options)
    config = uvicorn.Config(app, http=http_protocol(limits), ws="none", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield Client(listener.getsockname()[1], server)
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive()
