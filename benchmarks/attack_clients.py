"""Clients with expensive requests, large bodies and a long load, against a server process on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from .serving import ELEMENTS, _answer, soak

_SERVER = """
import sys
from benchmarks.attack_clients import serve_models
serve_models()
"""
Found = tuple[dict[str, Any], list[str]]


def serve_models() -> None:
    """Serve a learned expander over 61,000 elements and an estimator, with the default limits."""
    from deepsets.estimators import SetRegressor
    from deepsets.serve import serve, served

    from .serving import expander

    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))  # an error here, not the end of other processes
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(5, 3)) for _ in range(64)]
    sums = SetRegressor(model="deep", epochs=2, random_state=0).fit(X, [x.sum() for x in X])
    models = [served("learned", expander("learned")), served("sums", sums)]
    serve(models, port=0, listening=lambda url: print(url, flush=True))


@contextmanager
def _server() -> Iterator[tuple[str, int]]:
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = urlsplit(process.stdout.readline().strip())
        try:
            yield str(url.hostname), int(url.port or 0)
        finally:
            process.terminate()
            process.wait(60)


def _request(path: str, question: Any = None) -> bytes:
    body = b"" if question is None else json.dumps(question).encode()
    method = "GET" if question is None else "POST"
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def _client(address: tuple[str, int], requests: list[bytes], end: float, pause: float) -> dict[str, Any]:
    """Send requests one after another until the end; returns statuses, 0 where the server closed, and seconds."""
    reader, writer = await asyncio.open_connection(*address)
    times, statuses, i = [], [], 0
    while time.perf_counter() < end:
        start = time.perf_counter()
        writer.write(requests[i % len(requests)])
        try:
            status, _ = await _answer(reader)
        except (asyncio.IncompleteReadError, ConnectionError):  # closed by the server, as after 408
            status = 0
            reader, writer = await asyncio.open_connection(*address)
        times.append(time.perf_counter() - start)
        statuses.append(status)
        i += 1
        await asyncio.sleep(pause)
    writer.close()
    return {"times": times, "statuses": statuses}


async def _load(address: tuple[str, int], cheap: list[bytes], others: list[list[bytes]], seconds: float) -> list[Any]:
    end = time.perf_counter() + seconds
    clients = [_client(address, cheap, end, 0.02), *(_client(address, some, end, 0.0) for some in others)]
    return await asyncio.gather(*clients)


def _compare(cheap: list[bytes], others: list[list[bytes]], seconds: float, most: float, base_ms: float) -> Found:
    """The cheap client alone and beside the others; its p99 may be `most` times as long (or `base_ms`)."""
    with _server() as address:
        for request in (*cheap, *others[0]):  # warm-up
            asyncio.run(_client(address, [request], time.perf_counter() + 0.5, 0.0))
        alone = asyncio.run(_load(address, cheap, [], min(seconds, 20.0)))[0]
        beside, *rest = asyncio.run(_load(address, cheap, others, seconds))
    p99 = [1e3 * float(np.quantile(found["times"], 0.99)) for found in (alone, beside)]
    wrong = sum(status != 200 for status in beside["statuses"])
    statuses = [status for client in rest for status in client["statuses"]]
    row = {"seconds": seconds, "cheap requests": len(beside["times"]), "cheap errors": wrong}
    row |= {"p99 alone ms": p99[0], "p99 beside ms": p99[1], "times": p99[1] / p99[0]}
    row |= {"median alone ms": 1e3 * float(np.median(alone["times"]))}
    row |= {"median beside ms": 1e3 * float(np.median(beside["times"])), "clients": len(others)}
    row |= {"expensive answers": statuses.count(200), "expensive refused": len(statuses) - statuses.count(200)}
    row |= {"expensive median ms": 1e3 * float(np.median([t for client in rest for t in client["times"]]))}
    row |= {"expensive statuses": dict(Counter(map(str, statuses))), "cores": os.cpu_count()}
    failures = [f"{wrong} errors of the cheap client"] if wrong else []
    if p99[1] > max(most * p99[0], base_ms):
        failures.append(f"p99 of the cheap client {p99[1]:.1f} ms, {p99[1] / p99[0]:.1f} times its time alone")
    return row, failures


def expensive(seconds: float) -> Found:
    """Four clients that ask for the fits of 256 words, and one that expands three words."""
    rng = np.random.default_rng(0)
    words = [[f"word{i}" for i in rng.choice(ELEMENTS, 256, replace=False)] for _ in range(8)]
    few = [_request("/v1/expand", {"query": some[:3]}) for some in words]
    return _compare(few, [[_request("/v1/fits", {"query": some})] for some in words[:4]], seconds, 10.0, 0.0)


def bodies(seconds: float) -> Found:
    """Sixteen clients that send 10,000 sets each time, and health checks; these may take a tenth of a second."""
    large = [_request("/v1/predict", {"model": "sums", "sets": [[[0.1, 0.2, 0.3]]] * 10_000})]
    return _compare([_request("/healthz")], [large] * 16, seconds, 10.0, 100.0)


def long_load(seconds: float) -> Found:
    """Sixty-four clients for minutes, each with a request about every second."""
    row = soak("vectors", seconds / 60, pause=1.0)
    failures = [f"{row['failed']} wrong answers"] if row["failed"] else []
    if row["growth %"] > 5:
        failures.append(f"memory grew by {row['growth %']:.1f} %")
    return row, failures


ATTACKS = {"clients": expensive, "bodies": bodies, "soak": long_load}
