"""Tables larger than memory: agreement of the engines, one large set, overhead, workers.

python -m benchmarks.scaling CASE [ROWS] [ENGINE,...] runs one of same, large_set, overhead, workers.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import deepsets
from benchmarks.results import write
from deepsets import Sets, distributed, nn
from deepsets.estimators import SetRegressor

FEATURES = 16
NAMES = [f"x{i}" for i in range(FEATURES)]
Rows = list[dict[str, object]]


def model(width: int = 128) -> nn.DeepSet:
    """Return a model with a phi of three layers, and max, mean, min and standard deviation."""
    torch.manual_seed(0)
    phi = torch.nn.Sequential(*nn.mlp(FEATURES, width, width, width), torch.nn.ReLU())
    return nn.DeepSet(phi, nn.mlp(4 * width + 1, width, 1), pool=["max", "mean", "min", "std"], append_size=True).eval()


def shards(folder: Path, rows: int, sets: int, files: int = 8, *, scattered: bool = True, group: int = 50_000) -> Path:
    """Write rows of sets to Parquet files: sorted by set, or in any order."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    edges = np.linspace(0, rows, files + 1).astype(int)
    for number, (start, stop) in enumerate(pairwise(edges)):
        with pq.ParquetWriter(folder / f"{number:03d}.parquet", _rows(np.zeros(0, int), rng).schema) as sink:
            for first in range(start, stop, 250_000):
                count = min(250_000, stop - first)
                ids = rng.integers(0, sets, count) if scattered else np.arange(first, first + count) * sets // rows
                sink.write_table(_rows(ids, rng), group)
    return folder


def _rows(ids: np.ndarray, rng: np.random.Generator) -> pa.Table:
    values = rng.standard_normal((FEATURES, len(ids)), dtype=np.float32)
    return pa.table({"set": ids, **dict(zip(NAMES, values, strict=True))})


def same(rows: int = 1_000_000, engines: tuple[str, ...] = ("local", "ray", "spark")) -> Rows:
    """Largest relative difference between an engine and all rows at once in memory, in float64."""
    net, out = model(), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = pa.concat_tables([pq.read_table(f) for f in sorted(shards(folder / "0", rows, 1000).iterdir())])
        ids = table["set"].to_numpy()
        order = np.argsort(ids, kind="stable")
        values = torch.from_numpy(np.stack([table[x].to_numpy() for x in NAMES], axis=1)[order]).double()
        with torch.no_grad():
            found = net.double()(Sets(values, torch.from_numpy(np.concatenate([[0], np.cumsum(np.bincount(ids))]))))
        wanted = found[:, 0].numpy()
        net.float()
        rng = np.random.default_rng(1)
        cases = {"one file": (1, rows, False), "8 files": (8, 20_000, False), "3 files, shuffled": (3, 5_000, True)}
        for number, (case, (files, group, shuffle)) in enumerate(cases.items(), 1):
            (folder / str(number)).mkdir()
            mixed = table.take(pa.array(rng.permutation(rows))) if shuffle else table
            for i, chosen in enumerate(np.array_split(np.arange(rows), files)):
                part = mixed.slice(int(chosen[0]), len(chosen))
                pq.write_table(part, folder / str(number) / f"{i}.parquet", group)
            for engine in engines:
                path, where = folder / f"{number}-{engine}.parquet", distributed.Engine(engine, workers=2)
                distributed.predict(
                    net, folder / str(number), path, by="set", part_size=max(group, rows // 10), engine=where
                )
                difference = np.abs(pq.read_table(path)["prediction"].to_numpy() - wanted)
                row: dict[str, object] = {"case": case, "engine": engine}
                row["largest difference / largest prediction"] = float(difference.max() / np.abs(wanted).max())
                out.append(row | {"largest relative difference": float((difference / np.abs(wanted)).max())})
    return out


_LARGE_SET = """
import sys, time
import numpy as np, pyarrow as pa, torch
from benchmarks.scaling import NAMES, FEATURES, peak
from deepsets import distributed, nn
torch.set_num_threads(1)
torch.manual_seed(0)
net = nn.DeepSet(nn.mlp(FEATURES, 32, 32), nn.mlp(97, 32, 1), pool=["max", "mean", "std"], append_size=True).eval()
encode, merge, rng = distributed.encode(net, by="set"), distributed.merge(net), np.random.default_rng(0)
def pooled(total, batch=500_000):
    state = None
    for start in range(0, total, batch):
        n = min(batch, total - start)
        values = rng.standard_normal((FEATURES, n), dtype=np.float32)
        new = encode(pa.table({"set": np.zeros(n, int), **dict(zip(NAMES, values))}))
        state = new if state is None else merge(pa.concat_tables([state, new]))
    return state
pooled(500_000)
idle, start, busy = peak(), time.perf_counter(), time.process_time()
state = pooled(int(sys.argv[1]))
assert state["members"].to_pylist() == [int(sys.argv[1])]
print(idle, peak() - idle, time.perf_counter() - start, time.process_time() - busy)
"""


def peak() -> float:
    """Peak memory of this process so far, MB."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def large_set(size: int = 10**8) -> Rows:
    """One set of `size` elements x 16 and a tenth of it, before and after: peak memory, seconds, CPU seconds."""
    out: Rows = []
    for count in (size // 10, size, size // 10):
        idle, over, seconds, busy = in_process(_LARGE_SET, count)
        row: dict[str, object] = {"case": f"one set of {count:,} x 16", "idle MB": idle, "peak MB over idle": over}
        out.append(row | {"seconds": seconds, "CPU seconds": busy})
    small = (out[0]["CPU seconds"] + out[2]["CPU seconds"]) / 2  # type: ignore[operator]
    return [*out, {"case": "10x the elements", "times the CPU seconds": out[1]["CPU seconds"] / small}]  # type: ignore[operator]


def overhead(rows: int = 8_000_000, repeats: int = 2) -> Rows:
    """`deepsets predict` on files, all cores, against a loop of `predict` over batches in memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = {
            "sorted, sets of 10": shards(folder / "sorted", rows, rows // 10, scattered=False),
            "8,000 scattered sets": shards(folder / "mixed", rows, 8_000),
        }
        few = pq.read_table(next(shards(folder / "few", 2000, 200, files=1, scattered=False).iterdir())).to_pandas()
        few["y"] = few.groupby("set")["x0"].transform("mean")
        deepsets.save(SetRegressor(epochs=1, by="set", random_state=0).fit(few, "y"), folder / "model")
        out: Rows = []
        for case, table in tables.items():
            runs = [(_loop(folder, table), _command(folder, table)) for _ in range(repeats)]
            loops, commands = zip(*runs, strict=True)
            row: dict[str, object] = {"case": f"{case}, {rows:,} rows", "loop s": min(loops), "engine s": min(commands)}
            out.append(row | {"times": min(commands) / min(loops)})
    return out


def _loop(folder: Path, table: Path) -> float:
    """Seconds of `predict` alone: reading and grouping the rows is not counted."""
    fitted, taken = deepsets.load(folder / "model"), 0.0
    for file in sorted(table.iterdir()):
        frame = pq.read_table(file).to_pandas().sort_values("set", kind="stable")
        offsets = torch.from_numpy(np.concatenate([[0], np.flatnonzero(np.diff(frame["set"])) + 1, [len(frame)]]))
        sets = Sets(torch.from_numpy(frame[NAMES].to_numpy()), offsets)
        cuts = np.searchsorted(offsets.numpy(), np.arange(0, len(frame), 50_000)).tolist()
        for batch in [sets[a:b] for a, b in zip(cuts, [*cuts[1:], len(sets)], strict=True) if b > a]:
            start = time.perf_counter()
            fitted.predict(batch)
            taken += time.perf_counter() - start
    return taken


def _command(folder: Path, table: Path) -> float:
    """Seconds that the command reports: with the start of its processes, reading and writing."""
    command = ["deepsets", "predict", folder / "model", table, "-o", folder / "out.parquet", "--overwrite", "--json"]
    done = subprocess.run([sys.executable, "-m", *map(str, command)], check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["seconds"])


_POOL = """
import pickle, sys, time
from pathlib import Path
from deepsets import distributed
if __name__ == "__main__":
    net, engine = pickle.loads(Path(sys.argv[1]).read_bytes()), distributed.Engine(sys.argv[4], int(sys.argv[5]))
    if engine.name == "ray":
        import ray
        ray.init(num_cpus=engine.workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    start = time.perf_counter()
    distributed.pool(net, sys.argv[2], sys.argv[3], by="set", engine=engine, part_size=int(sys.argv[6]))
    print(time.perf_counter() - start)
"""


def workers(rows: int = 24_000_000, engines: tuple[str, ...] = ("local", "ray")) -> Rows:
    """Two workers against one, beside two independent runs with one worker each: what the machine allows."""
    out: Rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = shards(folder / "table", rows, 1000, files=16)
        (folder / "net").write_bytes(pickle.dumps(model()))

        def start(engine: str, count: int, number: int) -> subprocess.Popen[str]:
            output = folder / f"{engine}-{count}-{number}.parquet"
            command = [sys.executable, "-c", _POOL, folder / "net", table, output, engine, count, rows // 32]
            return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)

        for engine in engines:
            one, two = (float(start(engine, count, 0).communicate()[0]) for count in (1, 2))
            pair = [start("local", 1, number) for number in (1, 2)]
            side_by_side = max(float(process.communicate()[0]) for process in pair)
            alone = one if engine == "local" else float(start("local", 1, 3).communicate()[0])
            allowed = 2 * alone / side_by_side
            row: dict[str, object] = {"case": f"pool {rows:,} rows, 1000 scattered sets", "engine": engine}
            row |= {"1 worker s": one, "2 workers s": two, "faster by": one / two, "machine allows": allowed}
            out.append(row | {"share of what the machine allows": one / two / allowed})
    return out


def in_process(code: str, *args: object) -> list[float]:
    """Run code in a process of its own, and return the numbers that it prints."""
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-c", code, *map(str, args)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return [float(word) for word in done.stdout.split()]


def main(cases: dict[str, Callable[..., Rows]], arguments: list[str]) -> None:
    """Run one case, print its rows, and write them to results/ if it has its full size."""
    name, *rest = arguments
    sizes = [int(float(each)) for each in rest if each[0].isdigit()]
    engines = [tuple(each.split(",")) for each in rest if not each[0].isdigit()]
    rows = cases[name](*sizes, **({"engines": engines[0]} if engines else {}))
    for row in rows:
        print(row)
    if not rest:
        write(f"speed-scaling-{name.replace('_', '-')}", rows)


CASES: dict[str, Callable[..., Rows]] = {case.__name__: case for case in (same, large_set, overhead, workers)}

if __name__ == "__main__":
    main(CASES, sys.argv[1:])
