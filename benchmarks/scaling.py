"""Tables larger than memory: agreement of the engines, one large set, overhead, workers.

python -m benchmarks.scaling CASE [ROWS] [ENGINE,...] [--record] runs one of same, large_set, overhead, workers.
"""

from __future__ import annotations

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

from benchmarks.results import write
from deepsets import Sets, distributed, nn
from deepsets.train.process import keep_memory

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


_PREDICT = """
import pickle, sys, time
from pathlib import Path
from deepsets import distributed
if __name__ == "__main__":
    net = pickle.loads(Path(sys.argv[1]).read_bytes())
    engine = distributed.Engine(workers=1) if sys.argv[4] == "one" else "local"
    for _ in range(2):
        start = time.process_time()
        done = distributed.predict(net, sys.argv[2], sys.argv[3], by="set", overwrite=True, engine=engine)
        print(time.process_time() - start if sys.argv[4] == "one" else done["seconds"])
"""


def overhead(rows: int = 8_000_000, repeats: int = 2) -> Rows:
    """`predict` of the local engine on files against a loop over batches in memory: all cores, and CPU seconds of one.

    The loop is the model alone, the fastest of its runs in one process: reading and grouping the rows is not counted.
    The engine's seconds hold reading, grouping and writing; the first run in its process also what is imported and
    compiled then. Both keep freed memory.
    """
    net, out = model(), []
    keep_memory()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "net").write_bytes(pickle.dumps(net))
        tables = {
            "sorted, sets of 10": shards(folder / "sorted", rows, rows // 10, scattered=False),
            "8,000 scattered sets": shards(folder / "mixed", rows, 8_000),
        }
        os.sync()  # the engine would wait for the tables to be written
        for case, table in tables.items():
            for cores, clock in ((len(os.sched_getaffinity(0)), time.perf_counter), (1, time.process_time)):
                torch.set_num_threads(cores)
                loops, engines = [], []
                for _ in range(repeats if cores > 1 else 1):
                    loops.append(_loop(net, table, clock))
                    which = "one" if cores == 1 else "all"
                    engines.append(in_process(_PREDICT, folder / "net", table, folder / "out.parquet", which))
                loop, (first, second) = min(loops), map(min, zip(*engines, strict=True))
                what = "CPU s" if cores == 1 else "s"
                row: dict[str, object] = {"case": f"{case}, {rows:,} rows", "cores": cores, f"loop {what}": loop}
                row |= {f"engine {what}": second, "times": second / loop}
                out.append(row | {f"engine {what}, first run": first, "times, first run": first / loop})
    return out


def _loop(net: nn.DeepSet, table: Path, clock: Callable[[], float]) -> float:
    taken = 0.0
    for file in sorted(table.iterdir()):
        rows = pq.read_table(file).sort_by("set")
        ids = rows["set"].to_numpy()
        offsets = np.concatenate([[0], np.flatnonzero(np.diff(ids)) + 1, [len(ids)]])
        sets = Sets(torch.from_numpy(np.stack([rows[x].to_numpy() for x in NAMES], axis=1)), torch.from_numpy(offsets))
        cuts = np.searchsorted(offsets, np.arange(0, len(ids), 50_000)).tolist()
        for batch in [sets[a:b] for a, b in pairwise([*cuts, len(sets)]) if b > a]:
            start = clock()
            with torch.no_grad():
                net(batch)
            taken += clock() - start
    return taken


_POOL = """
import os, pickle, sys, time
from pathlib import Path
from deepsets import distributed
if __name__ == "__main__":
    net, cores = pickle.loads(Path(sys.argv[1]).read_bytes()), int(sys.argv[5])
    engine = distributed.Engine(sys.argv[4], cores)
    if engine.name == "ray":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
        os.environ["RAY_worker_niceness"] = "0"  # as the other engines: Ray's workers give way to all other processes
        import ray
        ray.init("local", num_cpus=cores, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    start = time.perf_counter()
    distributed.pool(net, sys.argv[2], sys.argv[3], by="set", engine=engine, part_size=int(sys.argv[6]))
    print(time.perf_counter() - start)
"""


def workers(rows: int = 18_000_000, engines: tuple[str, ...] = ("local", "ray")) -> Rows:
    """Two workers against one, beside two independent runs with one worker each: what the machine allows.

    With one worker Ray has one core, which the worker shares with Ray's own processes.
    """
    out: Rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = shards(folder / "table", rows, 1000, files=16)
        (folder / "net").write_bytes(pickle.dumps(model(256)))
        os.sync()

        def pooling(engine: str, count: int, number: int) -> Callable[[], list[float]]:
            output = folder / f"{engine}-{count}-{number}.parquet"
            return start(_POOL, folder / "net", table, output, engine, count, rows // 32)

        alone = pooling("local", 1, 0)()[0]
        side_by_side = max(waiting()[0] for waiting in [pooling("local", 1, number) for number in (1, 2)])
        for engine in engines:
            one = alone if engine == "local" else pooling(engine, 1, 0)()[0]
            two = pooling(engine, 2, 0)()[0]
            allowed = 2 * alone / side_by_side
            row: dict[str, object] = {"case": f"pool {rows:,} rows, 1000 scattered sets", "engine": engine}
            row |= {"1 worker s": one, "2 workers s": two, "faster by": one / two, "machine allows": allowed}
            out.append(row | {"share of what the machine allows": one / two / allowed})
    return out


def in_process(code: str, *args: object) -> list[float]:
    """Run code in a process of its own, and return the numbers that it prints."""
    return start(code, *args)()


def start(code: str, *args: object) -> Callable[[], list[float]]:
    """Start code in a process of its own; returns a function that waits for it, and for the numbers that it prints.

    It prints to a file. The end of a pipe would come only when the server of its worker processes has ended too.
    """
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    output = tempfile.TemporaryFile("w+")
    command = [sys.executable, "-c", code, *map(str, args)]
    process = subprocess.Popen(command, stdout=output, env=environment)

    def numbers() -> list[float]:
        if process.wait():
            raise RuntimeError(f"the process ended with {process.returncode}: {code}")
        with output:
            output.seek(0)
            return [float(word) for word in output.read().split()]

    return numbers


def main(cases: dict[str, Callable[..., Rows]], arguments: list[str]) -> None:
    """Run one case, print its rows, and write them to results/ if it has its full size, or with --record."""
    name, *rest = [each for each in arguments if each != "--record"]
    sizes = [int(float(each)) for each in rest if each[0].isdigit()]
    engines = [tuple(each.split(",")) for each in rest if not each[0].isdigit()]
    rows = cases[name](*sizes, **({"engines": engines[0]} if engines else {}))
    for row in rows:
        print(row)
    if not rest or "--record" in arguments:
        write(f"speed-scaling-{name.replace('_', '-')}", rows)


CASES: dict[str, Callable[..., Rows]] = {case.__name__: case for case in (same, large_set, overhead, workers)}

if __name__ == "__main__":
    main(CASES, sys.argv[1:])
