"""Clients that are slow, greedy, broken, many or gone: none may stand in the way of the others."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from deepsets.expand import BayesianSets
from deepsets.serve import Limits, served
from deepsets.serve.scheduler import Scheduler
from deepsets.serve.limits import RequestError
from tests.deepsets.serve.serving import running

SETS = [["lion", "tiger", "puma"], ["tiger", "puma", "lynx"], ["oak", "elm", "fir"]]
HEAD = b"POST /v1/expand HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
GOOD = {"query": ["lion"]}


class Slow(BayesianSets):
    """Takes a while, and counts its calls."""

    seconds = 0.3

    def scores(self, queries, z=None):
        queries = list(queries)
        self.__dict__.setdefault("calls", []).append(len(queries))
        if self.seconds and "lynx" in queries[0]:
            time.sleep(self.seconds)
        return super().scores(queries, z)


def new(kind=BayesianSets):
    return served("beasts", kind().fit(SETS))


def quick(api, seconds=5.0):
    start = time.perf_counter()
    assert api.post("/v1/expand", GOOD)[0] == 200
    assert time.perf_counter() - start < seconds


def keep_busy(api, model):
    """A question that takes a while; the model works on it now."""
    model.model.calls = []
    first = threading.Thread(target=api.post, args=("/v1/expand", {"query": ["lynx"]}))
    first.start()
    while not model.model.calls:
        time.sleep(0.001)
    return first


@pytest.fixture(scope="module")
def api():
    with running([new()], Limits(body=2000, timeout=1.0, headers=0.5)) as client:
        yield client


def test_slow_headers_are_cut_and_block_nobody(api):
    slow = [api.connect() for _ in range(50)]
    for connection in slow:
        connection.sendall(HEAD[:20])
    quick(api)
    for connection in slow:
        connection.settimeout(10)
        try:
            assert connection.recv(100) == b""  # closed without a word
        except ConnectionResetError:
            pass
        connection.close()


def test_slow_headers_of_a_second_request_are_cut_too(api):
    with api.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        found = b""
        while b'"ok"}' not in found:
            found += connection.recv(10_000)
        connection.sendall(b"GET /he")
        connection.settimeout(10)
        try:
            assert connection.recv(100) == b""
        except ConnectionResetError:
            pass


def test_endless_headers_are_cut(api):
    with api.connect() as connection, pytest.raises(OSError):
        connection.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(1000):
            connection.sendall(b"x-more: " + b"a" * 10_000 + b"\r\n")
    quick(api)


def test_a_slow_body_gets_408_and_blocks_nobody(api):
    with api.connect() as connection:
        connection.sendall(HEAD + b"content-length: 100\r\n\r\n{")
        quick(api)
        assert b"408" in connection.recv(10_000).split(b"\r\n")[0]


def test_a_large_body_is_refused_while_it_is_read(api):
    status, headers, answer = api.post("/v1/expand", b" " * 2001)
    assert (
        status == 413 and answer["error"] == "the body is larger than 2000 bytes." and headers["connection"] == "close"
    )
    with api.connect() as connection:  # no length is given, and no end comes
        connection.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        found = b""
        try:
            for _ in range(30):
                connection.sendall(b"400\r\n" + b" " * 0x400 + b"\r\n")
                time.sleep(0.001)
            found = connection.recv(10_000)
        except ConnectionError:
            pass
        assert found == b"" or b"413" in found
    quick(api)


def test_noise_is_refused(api):
    for noise in (
        b"\x16\x03\x01\x02\x00\x01",
        b"GET\r\n\r\n",
        b"POST /v1/expand HTTP/1.1\r\ncontent-length: x\r\n\r\n",
    ):
        with api.connect() as connection:
            connection.sendall(noise)
            assert b"400" in connection.recv(10_000).split(b"\r\n")[0]
    quick(api)


def test_questions_that_come_together_are_answered_together_and_bad_ones_alone():
    model = new(Slow)
    with running([model]) as api:
        first = keep_busy(api, model)
        found = {}

        def ask(i, word):
            found[i] = api.post("/v1/expand", {"query": [word], "k": 1})

        words = ["lion", "oak", "unknown", "puma", "elm"]
        threads = [threading.Thread(target=ask, args=pair) for pair in enumerate(words)]
        for thread in threads:
            thread.start()
        for thread in [*threads, first]:
            thread.join()
    assert [found[i][0] for i in range(5)] == [200, 200, 422, 200, 200]
    for i in (0, 1, 3, 4):
        assert found[i][2]["candidates"][0]["element"] == model.model.expand([words[i]], 1)[0].element
    assert max(model.model.calls) > 1 and sum(model.model.calls) == 5


def test_a_flood_gets_429_and_late_answers_504():
    model = new(Slow)
    model.model.seconds = 1.0
    with running([model], Limits(queue=4, timeout=0.7)) as api:
        statuses = []

        def ask():
            status, headers, _ = api.post("/v1/expand", {"query": ["lynx"]})
            assert status != 429 or headers["retry-after"] == "1"
            statuses.append(status)

        threads = [threading.Thread(target=ask) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(statuses) == {429, 504} and statuses.count(504) >= 4
        model.model.seconds = 0
        quick(api)


def test_a_client_that_leaves_is_forgotten():
    model = new(Slow)
    body = json.dumps({"query": ["puma"]}).encode()
    with running([model]) as api:
        first = keep_busy(api, model)
        for _ in range(5):
            with api.connect() as connection:
                connection.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
        first.join()
        quick(api)
        assert sum(model.model.calls) == 2
        assert 'status="499"} 5.0' in api.get("/metrics")[2]


def test_batching_keeps_order_and_separates_kinds_and_failures():
    def answer(questions):
        calls.append(list(questions))
        if "bad" in questions:
            raise ValueError("bad")
        return [q.upper() for q in questions]

    async def main():
        batching = Batching(Limits(queue=6))
        asks = [
            asyncio.create_task(batching.ask(kind, 3, answer, q))
            for kind, q in (("a", "x"), ("b", "y"), ("a", "bad"), ("a", "z"), ("a", "w"), ("b", "gone"))
        ]
        await asyncio.sleep(0)
        asks[-1].cancel()
        await asyncio.sleep(0)
        asks.append(asyncio.create_task(batching.ask("b", 3, answer, "v")))  # takes the place of the one that left
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="6 requests wait already"):
            await batching.ask("a", 3, answer, "too many")
        worker = asyncio.create_task(batching.work())
        found = await asyncio.gather(*asks, return_exceptions=True)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        return found

    calls = []
    found = asyncio.run(main())
    assert [found[i] for i in (0, 1, 3, 4, 6)] == ["X", "Y", "Z", "W", "V"]
    assert str(found[2]) == "bad" and isinstance(found[5], asyncio.CancelledError)
    assert calls == [["x", "bad", "z"], ["x"], ["bad"], ["z"], ["y", "v"], ["w"]]


COMMAND = """
import sys, time
from tests.deepsets.serve.test_robustness import Slow, SETS
from deepsets import serve
from deepsets.cli import app
model = Slow().fit(SETS)
serve.concepts = lambda verbose: [serve.served("beasts", model)]
app(sys.argv[1:])
"""


def start(*options):
    command = [sys.executable, "-c", COMMAND, "serve", *options]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"}
    environment.pop("DEEPSETS_TOKEN", None)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def test_the_command_ends_well_on_sigterm_and_logs_no_contents():
    from http.client import HTTPConnection

    with start("--port", "0") as process:
        line = process.stdout.readline()
        assert line.startswith("beasts on http://127.0.0.1:"), line + process.stderr.read()
        port = int(line.split(":")[2].split("/")[0])
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/v1/complete?prefix=secret")
        connection.getresponse().read()
        connection.request("POST", "/v1/expand", b'{"query": ["secret"]}', {"content-type": "application/json"})
        assert connection.getresponse().read() and connection.request("GET", "/secret") is None
        connection.getresponse().read()
        connection.request("POST", "/v1/expand", b'{"query": ["lynx"]}', {"content-type": "application/json"})
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        answer = connection.getresponse()  # what is under way is finished
        assert answer.status == 200 and json.loads(answer.read())["candidates"]
        assert process.wait(20) == 0
        with pytest.raises(ConnectionError):
            HTTPConnection("127.0.0.1", port, timeout=5).request("GET", "/healthz")
        log = process.stderr.read()
    assert "secret" not in log and "lynx" not in log
    lines = [json.loads(line) for line in log.splitlines()]
    seen = [(entry["method"], entry["route"], entry["status"]) for entry in lines if "route" in entry]
    post = ("POST", "/v1/expand", 200)
    assert seen == [("GET", "/v1/complete", 200), ("POST", "/v1/expand", 422), ("GET", "-", 404), post]
    assert all(entry["ms"] > 0 and entry["bytes"] > 0 for entry in lines if "route" in entry)


def test_the_command_refuses_other_machines_without_a_token(tmp_path):
    from typer.testing import CliRunner

    from deepsets.cli import app

    found = CliRunner().invoke(app, ["serve", "--host", "0.0.0.0"], env={"DEEPSETS_TOKEN": ""})
    assert found.exit_code == 1 and "0.0.0.0 can be reached from other machines: give a token" in found.output
    (tmp_path / "token").write_text("short\n")
    found = CliRunner().invoke(app, ["serve", "--token-file", str(tmp_path / "token")])
    assert found.exit_code == 1 and "at least 16 characters" in found.output
    found = CliRunner().invoke(app, ["serve", str(tmp_path / "nothing")])
    assert found.exit_code == 1 and "does not exist: wanted a model folder" in found.output
