"""What HTTP costs over the call itself, what 64 clients get out of one core, and memory under a long load.

python -m benchmarks.serving [--minutes 10]: server and clients are processes of their own, on loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from .results import write

ELEMENTS, K = 61_000, 10
MODELS = ("vectors", "bayesian", "learned")


def expander(kind: str) -> Any:
    """61,000 elements: vectors of 300 numbers; Bayesian Sets over 5,000 sets of 50; the learned expander, untrained."""
    from deepsets import expand

    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(ELEMENTS)]
    if kind == "vectors":
        return expand.NearestVectors((words, rng.normal(size=(ELEMENTS, 300)).astype(np.float32))).fit()
    sets = [[words[i] for i in rng.choice(ELEMENTS, 50, replace=False)] for _ in range(5000)]
    if kind == "bayesian":
        return expand.BayesianSets().fit(sets, vocabulary=words)
    return expand.SetExpander(epochs=1).fit(sets[:64], vocabulary=words)


def queries(count: int, seed: int = 1) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    return [[f"word{i}" for i in rng.integers(ELEMENTS, size=5)] for _ in range(count)]


@contextmanager
def server(kind: str) -> Iterator[tuple[str, int, int]]:
    """Host, port and process of a server that is held to one core; afterwards it is asked to end, and must do so."""
    one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.serving", "--serve", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | one) as process:
        assert process.stdout is not None
        url = urlsplit(process.stdout.readline().strip())
        try:
            yield str(url.hostname), int(url.port or 0), process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            if process.wait(60) != 0:
                raise RuntimeError(f"the server ended with {process.returncode}")


def run_server(kind: str) -> None:
    import torch

    from deepsets.serve import serve, served

    torch.set_num_threads(1)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    serve([served(kind, expander(kind))], port=0, listening=lambda url: print(url, flush=True))


def overhead(kind: str, repeats: int = 200) -> dict[str, Any]:
    """One client: the median of its requests beside the median of the same calls without HTTP, taking turns."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    model, asked = expander(kind), queries(repeats + 10)
    inside, outside = [], []
    with server(kind) as (host, port, _), threadpool_limits(1):  # one thread here as there
        connection = http.client.HTTPConnection(host, port)
        for query in asked:
            start = time.perf_counter()
            wanted = model.expand(query, k=K)
            middle = time.perf_counter()
            connection.request("POST", "/v1/expand", _body(query), {"content-type": "application/json"})
            found = json.loads(connection.getresponse().read())["candidates"]
            outside.append(time.perf_counter() - middle)
            inside.append(middle - start)
            assert [f["element"] for f in found] == [w.element for w in wanted]
    a, b = 1e3 * median(inside[10:]), 1e3 * median(outside[10:])
    return {"case": "one client", "model": kind, "in process ms": a, "http ms": b, "difference ms": b - a}


def throughput(kind: str, seconds: float = 8.0) -> list[dict[str, Any]]:
    """Answers a second for 1 client and for 64, each asking again as soon as it has its answer."""
    rows = []
    with server(kind) as (host, port, pid):
        asyncio.run(load(host, port, 8, 2.0))  # warm-up
        for clients in (1, 64):
            before = cpu_seconds(pid)
            done, failed, times = asyncio.run(load(host, port, clients, seconds))
            cpu = 1e3 * (cpu_seconds(pid) - before) / max(done, 1)
            row = {"case": f"{clients} clients", "model": kind, "answers/s": done / seconds, "failed": failed}
            row |= {"server CPU ms/answer": cpu}
            rows.append(row | {"median ms": 1e3 * median(times), "p99 ms": 1e3 * float(np.quantile(times, 0.99))})
    rows[1]["times one client"] = rows[1]["answers/s"] / rows[0]["answers/s"]
    return rows


def soak(kind: str, minutes: float, clients: int = 64, pause: float = 0.0) -> dict[str, Any]:
    """Many clients for some minutes, also with wrong questions and clients that leave: memory after the first tenth."""
    with server(kind) as (host, port, pid):
        done, failed, _ = asyncio.run(load(host, port, clients, 6 * minutes, mixed=True, pause=pause))
        first = _memory(pid)
        more, lost, _ = asyncio.run(load(host, port, clients, 54 * minutes, mixed=True, pause=pause))
        last = _memory(pid)
    row = {"case": f"{minutes:g} minutes, {clients} clients", "model": kind, "answers": done + more}
    row |= {"failed": failed + lost}
    return row | {"MB after warm-up": first, "MB at the end": last, "growth %": 100 * (last / first - 1)}


async def load(
    host: str, port: int, clients: int, seconds: float, mixed: bool = False, pause: float = 0.0
) -> tuple[int, int, list[float]]:
    """How many answers were right, how many not, and the time of each."""
    end, times = time.perf_counter() + seconds, []
    failed = 0

    async def client(number: int) -> None:
        nonlocal failed
        reader, writer = await asyncio.open_connection(host, port)
        for i, query in enumerate(_endless(number)):
            if time.perf_counter() > end:
                break
            wrong = mixed and i % 10 == 9
            start = time.perf_counter()
            writer.write(_request(["no such word"] if wrong else query))
            if mixed and i % 50 == 49:  # leaves without its answer
                writer.close()
                reader, writer = await asyncio.open_connection(host, port)
                continue
            status, found = await _answer(reader)
            times.append(time.perf_counter() - start)
            good = status == 422 if wrong else status == 200 and len(found["candidates"]) == K
            failed += not good
            await asyncio.sleep(pause)
        writer.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    return len(times) - failed, failed, times


def _endless(seed: int) -> Iterator[list[str]]:
    some = queries(200, seed)
    while True:
        yield from some


def _body(query: list[str]) -> bytes:
    return json.dumps({"query": query, "k": K}).encode()


def _request(query: list[str]) -> bytes:
    body = _body(query)
    head = (
        f"POST /v1/expand HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    )
    return head.encode() + b"\r\n\r\n" + body


async def _answer(reader: asyncio.StreamReader) -> tuple[int, Any]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(None, 1)[0])
    return int(head.split(None, 2)[1]), json.loads(await reader.readexactly(length))


def cpu_seconds(pid: int) -> float:
    """Seconds of processor time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def run(minutes: float = 10.0, models: tuple[str, ...] = MODELS) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for kind in models:
        rows += [overhead(kind), *throughput(kind)]
    if minutes:
        rows.append(soak(models[0], minutes))
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of the soak; 0 for none")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--write", action="store_true", help="keep the result")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        run_server(args.serve)
    else:
        found = run(args.minutes, tuple(args.models.split(",")))
        for row in found:
            print(row)
        if args.write:
            write("speed-serving", found)
