"""Clients that are slow, greedy, broken, many or gone: none may stand in the way of the others."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from deepsets.expand import BayesianSets
from deepsets.serve import Limits, served
from deepsets.serve.scheduler import Scheduler
from deepsets.serve.schema import RequestError
from tests.deepsets.serve.serving import running

SETS = [["lion", "tiger", "puma"], ["tiger", "puma", "lynx"], ["oak", "elm", "fir"]]
HEAD = b"POST /v1/expand HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
GOOD = {"query": ["lion"]}


class Slow(BayesianSets):
    """Takes a while, and counts its calls."""

    seconds = 0.3

    def scores(self, queries, z=None, best=None):
        queries = list(queries)
        self.__dict__.setdefault("calls", []).append(len(queries))
        if self.seconds and "lynx" in queries[0]:
            time.sleep(self.seconds)
        return super().scores(queries, z, best)


ROOT = Path(__file__).parents[3]


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


def test_large_requests_do_not_share_a_call():
    def answer(questions):
        calls.append(list(questions))
        return questions

    async def main():
        scheduler = Scheduler(Limits())
        units = {"small": 1, "large": 40, "larger": 60, "tiny": 1}
        asks = [asyncio.create_task(scheduler.submit("a", answer, q, units=u, max_batch=9)) for q, u in units.items()]
        await asyncio.sleep(0)
        worker = asyncio.create_task(scheduler.run())
        await asyncio.gather(*asks)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    calls = []
    asyncio.run(main())
    assert sorted(calls) == [["large"], ["larger"], ["small", "tiny"]]


def test_the_scheduler_keeps_order_and_separates_kinds_and_failures():
    def answer(questions):
        calls.append(list(questions))
        if "bad" in questions:
            raise ValueError("bad")
        return [q.upper() for q in questions]

    async def main():
        scheduler = Scheduler(Limits(queue=12))

        def submit(kind, question, client):
            asked = scheduler.submit(kind, answer, question, max_batch=3, client=client)
            return asyncio.create_task(asked)

        asks = [
            submit(kind, q, client)
            for kind, q, client in (
                ("a", "x", 1), ("b", "y", 2), ("a", "bad", 3), ("a", "z", 4), ("a", "w", 5), ("b", "gone", 6),
            )
        ]  # fmt: skip
        await asyncio.sleep(0)
        asks[-1].cancel()
        await asyncio.sleep(0)
        asks.append(submit("b", "v", 7))
        await asyncio.sleep(0)
        worker = asyncio.create_task(scheduler.run())
        found = await asyncio.gather(*asks, return_exceptions=True)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        return found

    calls = []
    found = asyncio.run(main())
    assert [found[i] for i in (0, 1, 3, 4, 6)] == ["X", "Y", "Z", "W", "V"]
    assert str(found[2]) == "bad" and isinstance(found[5], asyncio.CancelledError)
    assert calls == [["x", "bad", "z"], ["x"], ["bad"], ["z"], ["y", "v"], ["w"]]


def test_a_full_queue_refuses_and_one_client_cannot_fill_it():
    async def main():
        scheduler = Scheduler(Limits(queue=6))

        async def submit(client):
            return await scheduler.submit("kind", lambda questions: questions, client, client=client)

        tasks = [asyncio.create_task(submit("greedy")) for _ in range(3)]
        tasks.append(asyncio.create_task(submit("other")))
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="4 requests are waiting already"):
            await submit("greedy")
        tasks += [asyncio.create_task(submit(name)) for name in "ab"]
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="6 requests are waiting already") as error:
            await submit("c")
        assert error.value.status == 429
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


def test_expensive_requests_do_not_delay_cheap_ones():
    def work(questions):
        time.sleep(sum(questions))
        return questions

    async def main():
        scheduler = Scheduler(Limits())
        worker = asyncio.create_task(scheduler.run())
        expensive = [asyncio.create_task(scheduler.submit("fits", work, 0.3, units=100, client=i)) for i in range(4)]
        await asyncio.sleep(0.05)
        order = []
        for _ in range(5):
            await scheduler.submit("scores", work, 0.001, client="cheap")
            order.append(sum(task.done() for task in expensive))
        await asyncio.gather(*expensive)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        return order

    assert asyncio.run(main())[-1] <= 1  # five cheap answers came while the first expensive ones were computed


def test_a_request_that_would_exceed_the_time_limit_is_refused():
    async def main():
        scheduler = Scheduler(Limits(timeout=1.0))
        worker = asyncio.create_task(scheduler.run())
        for _ in range(2):  # the first may include a warm-up, and does not count
            await scheduler.submit("fits", lambda questions: time.sleep(0.1) or questions, 1, units=10)
        with pytest.raises(RequestError, match=r"would take about .* seconds, more than the limit of 1") as error:
            await scheduler.submit("fits", lambda questions: questions, 1, units=10_000)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        return error.value.status

    assert asyncio.run(main()) == 413


def test_a_request_that_would_wait_too_long_is_refused_at_once():
    def work(questions):
        time.sleep(0.4)
        return questions

    async def main():
        scheduler = Scheduler(Limits(timeout=1.0))
        worker = asyncio.create_task(scheduler.run())
        for _ in range(2):
            await scheduler.submit("fits", work, 1, units=20)
        waiting = [asyncio.create_task(scheduler.submit("fits", work, i, units=20, client=i)) for i in range(2)]
        await asyncio.sleep(0.05)
        with pytest.raises(RequestError, match="requests are waiting already") as error:
            await scheduler.submit("fits", work, 3, units=20, client=3)
        assert await asyncio.gather(*waiting) == [0, 1]
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        return error.value.status, error.value.headers

    assert asyncio.run(main()) == (429, {"retry-after": "1"})


def test_idle_connections_beyond_the_limit_are_closed_oldest_first():
    with running([new()], Limits(connections=5)) as api:
        idle = [api.connect() for _ in range(20)]
        time.sleep(0.3)
        quick(api)
        idle[0].settimeout(5)
        assert idle[0].recv(10) == b""
        for connection in idle:
            connection.close()
        quick(api)


@pytest.mark.parametrize("hosts", [b"", b"host: localhost\r\nhost: localhost\r\n"])
def test_a_request_needs_exactly_one_host(api, hosts):
    with api.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n" + hosts + b"\r\n")
        assert b"400" in connection.recv(10_000).split(b"\r\n")[0]


def test_any_loopback_address_is_a_loopback_name(api):
    assert api.get("/healthz", {"host": "127.0.0.2:8000"})[0] == 200
    assert api.get("/healthz", {"host": "[::1]:8000"})[0] == 200
    assert api.get("/healthz", {"host": "example.org"})[0] == 421


def test_a_log_that_nobody_reads_stops_nobody():
    import logging
    import os

    from deepsets.serve.server import BackgroundHandler

    read, write = os.pipe()
    handler = BackgroundHandler(os.fdopen(write, "w"), capacity=10)
    start = time.perf_counter()
    for _ in range(5000):
        handler.emit(logging.LogRecord("deepsets.serve", logging.INFO, "", 0, "a line of some length " * 10, (), None))
    assert time.perf_counter() - start < 5
    os.close(read)


def test_a_warning_that_repeats_is_logged_once_a_second():
    import io
    import logging

    from deepsets.serve.server import BackgroundHandler

    stream = io.StringIO()
    handler = BackgroundHandler(stream)
    for _ in range(1000):
        handler.emit(logging.LogRecord("asyncio", logging.ERROR, "", 0, "out of files", (), None))
    handler.emit(logging.LogRecord("deepsets.serve", logging.INFO, "", 0, "a request", (), None))
    handler.close()
    assert stream.getvalue() == "out of files\na request\n"


def test_hosts_take_turns_and_one_with_many_connections_cannot_starve_another():
    """A host with 40 connections keeps the model busy; the single request of another host is answered next."""
    model = new(Slow)
    model.model.seconds = 0.1
    body = json.dumps({"query": ["lynx"]}).encode()
    request = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    with running([model], Limits(batch=1, timeout=20)) as api:
        greedy = []
        for _ in range(40):
            greedy.append(socket.create_connection(("127.0.0.1", api.port), 30, source_address=("127.0.0.2", 0)))
            greedy[-1].sendall(request)
        while len(model.model.calls) < 3:
            time.sleep(0.001)
        before = len(model.model.calls)
        quick(api)
        assert len(model.model.calls) - before <= 4  # not the 37 that came first
        for connection in greedy:
            connection.close()


COMMAND = """
import sys, time
from tests.deepsets.serve.test_server import Slow, SETS
from deepsets import serve
from deepsets.cli import app
model = Slow().fit(SETS)
serve.words = lambda: [serve.served("beasts", model)]
app(sys.argv[1:])
"""


def start(*options, **more):
    command = [sys.executable, "-c", COMMAND, "serve", *options]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [ROOT, ROOT / "src"])), "OMP_NUM_THREADS": "1"}
    environment.pop("DEEPSETS_TOKEN", None)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **more)


@pytest.mark.slow
def test_signals_right_after_the_address_end_the_server_well():
    with start("--port", "0") as process:
        assert process.stdout.readline()
        for _ in range(3):
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.slow
def test_more_sockets_than_files_are_survived():
    import resource

    few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))}
    with start("--port", "0", **few) as process:
        port = int(process.stdout.readline().split(":")[2].split("/")[0])
        idle = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(300)]
        with socket.create_connection(("127.0.0.1", port), 30) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b"200" in connection.recv(10_000).split(b"\r\n")[0]
        for connection in idle:
            connection.close()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    assert process.returncode == 0
    assert len(log) < 100_000


@pytest.mark.slow
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
    assert found.exit_code == 1 and "at least 16 printable ASCII characters" in found.output
    found = CliRunner().invoke(app, ["serve", str(tmp_path / "nothing")])
    assert found.exit_code == 1 and "does not exist: wanted a model folder" in found.output
