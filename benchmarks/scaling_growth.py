"""How the cost of large tables grows: expansion over candidates in files, and pooling over rows and sets.

python -m benchmarks.scaling_growth CASE [COUNT] runs one of candidates (10^8 need 8 GB of disk), growth.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import deepsets
from benchmarks.scaling import FEATURES, Rows, in_process, main, shards
from deepsets.expand import SetExpander

_EXPAND = """
import sys, time
from pathlib import Path
import deepsets
from deepsets import distributed
from deepsets.train.process import keep_memory
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
keep_memory()  # as a worker and the command do
deepsets.load(sys.argv[1])
idle, start = peak(), time.process_time()
engine = distributed.Engine(workers=1)
found = distributed.expand(sys.argv[1], [0, 1, 2], sys.argv[2], 10, element="name", engine=engine)
print(time.process_time() - start, idle, peak(), found[0].element)
"""


def expander() -> SetExpander:
    """A small learned expander over rows of features."""
    known = np.random.default_rng(0).standard_normal((100, FEATURES), dtype=np.float32)
    sets = [list(range(i, i + 10)) for i in range(0, 90, 3)]
    return SetExpander(embedding=0, epochs=1, random_state=0).fit(sets, items=known)


def candidates(count: int = 10**8) -> Rows:
    """Expansion over candidates in files by one worker, in its own process: CPU seconds and peak memory."""
    out: Rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "candidates"
        folder.mkdir()
        deepsets.save(expander(), Path(name) / "model")
        kind = pa.list_(pa.field("element", pa.float32(), nullable=False), FEATURES)
        done = 0
        for size in (count // 100, count // 10, count):
            for first in range(done, size, 1_000_000):
                n = min(1_000_000, size - first)
                values = pa.array(np.random.default_rng(first).standard_normal(n * FEATURES, dtype=np.float32))
                table = pa.table(
                    {"name": np.arange(first, first + n), "v": pa.FixedSizeListArray.from_arrays(values, type=kind)}
                )
                pq.write_table(
                    table, folder / f"{first:012d}.parquet", 250_000, compression="none", use_dictionary=False
                )
            done = size
            seconds, idle, megabytes, best = in_process(_EXPAND, name + "/model", folder)
            row: dict[str, object] = {"case": f"{size:,} candidates of {FEATURES} features", "CPU seconds": seconds}
            out.append(
                row
                | {
                    "candidates per CPU second": size / seconds,
                    "idle MB": idle,
                    "peak MB of the worker": megabytes,
                    "best": int(best),
                }
            )
    return out


_GROW = """
import sys, time
import torch
from benchmarks.scaling import model, peak
from deepsets import distributed
from deepsets.train.process import keep_memory
torch.set_num_threads(1)
keep_memory()
net, engine = model(), distributed.Engine(workers=1)
distributed.pool(net, sys.argv[1], sys.argv[3] + ".few.parquet", by="set", engine=engine)
idle, start = peak(), time.perf_counter()
distributed.pool(net, sys.argv[2], sys.argv[3], by="set", engine=engine)
print(time.perf_counter() - start, peak() - idle)
"""


def growth(rows: int = 1_000_000) -> Rows:
    """Seconds and memory of one worker for several numbers of rows and sets, and a fitted cost model."""
    points = ((1, 10), (4, 10), (1, rows // 20), (1, rows // 5))
    out: Rows = []
    known, seconds = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few = shards(folder / "few", 1000, 10, files=1)
        for number, (times, sets) in enumerate(points):
            table = shards(folder / str(number), times * rows, sets, files=4)
            taken, over = in_process(_GROW, few, table, folder / f"{number}.parquet")
            states = times * 4 * int(sets * (1 - np.exp(-rows / 4 / sets)))  # one state per set and part
            known.append([times * rows, states])
            seconds.append(taken)
            row: dict[str, object] = {"case": f"pool, {times * rows:,} rows, {sets:,} sets", "seconds": taken}
            out.append(row | {"partial states": states, "peak MB over idle": over})
    per_row, per_state = np.linalg.lstsq(np.array(known, float), np.array(seconds), rcond=None)[0]
    worst = float(np.abs(np.array(known) @ [per_row, per_state] / seconds - 1).max())
    fitted: dict[str, object] = {"case": "fitted: rows * r + partial states * s", "r us": 1e6 * float(per_row)}
    return [*out, fitted | {"s us": 1e6 * float(per_state), "largest relative error": worst}]


CASES: dict[str, Callable[..., Rows]] = {case.__name__: case for case in (candidates, growth)}

if __name__ == "__main__":
    main(CASES, sys.argv[1:])
