"""Import time beside that of torch, and the first call of a kernel with an empty and with a filled cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from statistics import median

IMPORT = "import time; t = time.perf_counter(); import {name}; print(time.perf_counter() - t)"
CALL = """
import json, time, torch
from deepsets import Sets, nn
sets = Sets(torch.randn(20000, 8, requires_grad=True), torch.arange(0, 20001, 10))
seconds = {}
for name in ("sum", "max", "std", "logsumexp"):
    start = time.perf_counter()
    nn.pooling(name)(sets).sum().backward()
    seconds[name] = time.perf_counter() - start
print(json.dumps(seconds))
"""


def _python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={**os.environ, **environment}
    )
    return done.stdout


def run() -> list[dict[str, object]]:
    """Each in processes of its own, which take turns."""
    seconds: dict[str, list[float]] = {"torch": [], "deepsets": []}
    for _ in range(6):
        for name, found in seconds.items():
            found.append(float(_python(IMPORT.format(name=name))))
    middle = {name: median(found[1:]) for name, found in seconds.items()}
    rows: list[dict[str, object]] = [
        {"case": f"import {name}", "load": "idle", "s": s, "times torch": s / middle["torch"]}
        for name, s in middle.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        for cache in ("empty", "filled"):
            calls = json.loads(_python(CALL, NUMBA_CACHE_DIR=folder))
            rows += [
                {"case": f"first {name} pooling, forward + backward, {cache} cache", "load": "idle", "s": s}
                for name, s in calls.items()
            ]
    return rows
