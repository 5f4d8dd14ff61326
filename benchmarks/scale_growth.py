"""What grows how: seconds and peak memory of one worker over rows and states, and over candidates; fitted models.

python -m benchmarks.scale_growth [FACTOR] makes all tables larger or smaller.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.scale_data import shards

POINTS = ((250_000, 10), (1_000_000, 10), (4_000_000, 10), (250_000, 25_000), (1_000_000, 50_000), (1_000_000, 200_000))
CANDIDATES = (250_000, 1_000_000, 4_000_000)
FILES = 4

# One worker, as the engines start it: a thread, and memory that is kept.
WORKER = """
import sys, time
import numpy as np, torch
from benchmarks.scale_data import model
from deepsets import distributed as scale
from deepsets.expand import SetExpander
from deepsets.train import keep_memory

def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024

torch.set_num_threads(1)
keep_memory()
engine, net = scale.Engine(workers=1), model()
known = np.random.default_rng(0).standard_normal((100, 32), dtype=np.float32)
sets = [list(range(i, i + 10)) for i in range(0, 90, 3)]
expander = SetExpander(embedding=0, epochs=1, random_state=0).fit(sets, items=known)
scale.pool(net, sys.argv[3], sys.argv[4] + ".few.parquet", by="set", engine=engine)  # what is imported late
idle, start = peak(), time.perf_counter()
if sys.argv[1] == "pool":
    scale.pool(net, sys.argv[2], sys.argv[4], by="set", engine=engine)
else:
    scale.expand(expander, [0, 1, 2], sys.argv[2], 10, element="name", engine=engine)
print(time.perf_counter() - start, peak() - idle)
"""


def run(factor: float = 1.0) -> list[dict[str, object]]:
    out: list[dict[str, object]] = []
    points, seconds = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few = shards(folder / "few", 1000, 10, files=1)
        for number, (rows, sets) in enumerate((int(r * factor), max(1, int(s * factor))) for r, s in POINTS):
            table = shards(folder / str(number), rows, sets, files=FILES)
            taken, over = _worker("pool", table, few, folder / f"{number}.parquet")
            states = FILES * int(sets * (1 - np.exp(-rows / FILES / sets)))  # a set that a file holds gives it a state
            seconds.append(taken)
            points.append([1.0, rows, states])
            size = (folder / f"{number}.parquet").stat().st_size
            row = {"case": f"pool, {rows:,} rows, {sets:,} sets", "seconds": taken, "partial states": states}
            out.append(row | {"peak MB over idle": over, "bytes a state": size / sets})
        base, row_s, state_s = np.linalg.lstsq(np.array(points), np.array(seconds), rcond=None)[0]
        worst = float(np.abs(np.array(points) @ [base, row_s, state_s] / seconds - 1).max())
        fitted = {"case": "fitted: seconds = start + rows * r + partial states * s, one core", "start": float(base)}
        out.append(fitted | {"r us": 1e6 * float(row_s), "s us": 1e6 * float(state_s), "worst point is off by": worst})
        return out + _candidates(folder, few, factor)


def _candidates(folder: Path, few: Path, factor: float) -> list[dict[str, object]]:
    rng = np.random.default_rng(0)
    out: list[dict[str, object]] = []
    counts, seconds = [], []
    for count in (int(c * factor) for c in CANDIDATES):
        path = folder / f"candidates-{count}.parquet"
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.standard_normal(count * 32, dtype=np.float32)), 32)
        pq.write_table(pa.table({"name": np.arange(count), "v": vectors}), path, 100_000)
        taken, over = _worker("expand", path, few, path)
        counts.append(count)
        seconds.append(taken)
        row: dict[str, object] = {"case": f"expand, {count:,} candidates of 32 features", "seconds": taken}
        out.append(row | {"peak MB over idle": over})
    slope, base = np.polyfit(counts, seconds, 1)
    worst = float(np.abs((slope * np.array(counts) + base) / seconds - 1).max())
    fitted: dict[str, object] = {"case": "fitted: seconds = start + candidates * c, one core", "start": float(base)}
    return [*out, fitted | {"c us": 1e6 * float(slope), "worst point is off by": worst}]


def _worker(*args: object) -> tuple[float, float]:
    command = [sys.executable, "-c", WORKER, *map(str, args)]
    seconds, over = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(seconds), float(over)


if __name__ == "__main__":
    for row in run(*map(float, sys.argv[1:])):
        print(row)
