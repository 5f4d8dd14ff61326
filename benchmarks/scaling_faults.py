"""Fault tolerance: workers, drivers and a machine are killed, and the result is compared with an undisturbed run.

python -m benchmarks.scaling_faults CASE [KILLS] runs one of local_workers, local_driver, ray_workers, spark_workers.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.scaling import Rows, main, model, shards
from deepsets import distributed

ROWS, SETS, PART = 400_000, 500, 10_000

_DRIVER = """
import pickle, sys
from pathlib import Path
from deepsets import distributed
if __name__ == "__main__":
    net, engine = pickle.loads(Path(sys.argv[1]).read_bytes()), distributed.Engine(workers=1)
    print("started", flush=True)
    facts = distributed.pool(net, sys.argv[2], sys.argv[3], by="set", engine=engine, part_size=int(sys.argv[4]))
    print(facts["resumed"], facts["members"])
"""


def local_workers(kills: int = 10) -> Rows:
    """SIGKILL to workers of the local engine."""
    children = multiprocessing.active_children
    return _disturbed(distributed.Engine(workers=2), kills, lambda: [child.pid for child in children() if child.pid])


def ray_workers(kills: int = 10) -> Rows:
    """SIGKILL to workers of Ray, and the loss of one of two machines."""
    import ray
    from ray.cluster_utils import Cluster

    out = []
    for lost in (False, True):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        other = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        raylets = [node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()]
        pids: Callable[[], list[int]] = lambda: [p for r in raylets for p in _children(r, "MapBatches")]  # noqa: B023, E731
        remove = (lambda: cluster.remove_node(other, allow_graceful=False)) if lost else None  # noqa: B023
        out += _disturbed(distributed.Engine("ray"), 1 if lost else kills, pids, remove)
        ray.shutdown()
        cluster.shutdown()
    return out


def spark_workers(kills: int = 10) -> Rows:
    """SIGKILL to Python workers of Spark."""

    def workers() -> list[int]:
        below = {os.getpid()}  # other Spark sessions of this machine are left alone
        found = []
        for pid, parent, words in sorted(_processes()):
            if parent in below:
                below.add(pid)
                found += [pid] if "pyspark.daemon" in words else []
        return found[1:]  # the first one is the daemon that starts the others

    return _disturbed(distributed.Engine("spark", workers=2), kills, workers)


def local_driver(kills: int = 10) -> Rows:
    """SIGKILL to the driver of the local engine, which is then started again."""
    chance, same, absent, resumed = random.Random(0), 0, 0, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table, seconds = _undisturbed(folder)
        (folder / "net").write_bytes(pickle.dumps(model()))
        for number in range(kills):
            output = folder / f"driver-{number}.parquet"
            command = [sys.executable, "-c", _DRIVER, *map(str, (folder / "net", table, output, PART))]
            wait = chance.uniform(0.1, 0.8) * seconds
            parts = folder / f"{output.name}.parts"
            while output.exists() or not parts.exists():  # again, sooner, where the run had ended before
                output.unlink(missing_ok=True)
                shutil.rmtree(parts, ignore_errors=True)
                process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                assert process.stdout is not None
                process.stdout.readline()
                time.sleep(wait)
                process.kill()
                process.communicate()
                wait *= 0.7
            absent += not output.exists()
            done = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            resumed.append(int(done[1]))
            same += output.read_bytes() == (folder / "whole.parquet").read_bytes()
    row: dict[str, object] = {"case": "local driver, SIGKILL, then started again", "kills": kills}
    row |= {"no output before": absent, "same bytes": same}
    return [row | {"parts resumed": f"{min(resumed)}..{max(resumed)} of {ROWS // PART}"}]


def _undisturbed(folder: Path) -> tuple[Path, float]:
    table = shards(folder / "table", ROWS, SETS, files=4, group=PART)
    start = time.perf_counter()
    options = {"by": "set", "part_size": PART, "engine": distributed.Engine(workers=1)}
    distributed.pool(model(), table, folder / "whole.parquet", **options)
    return table, time.perf_counter() - start


def _disturbed(
    engine: distributed.Engine, kills: int, pids: Callable[[], list[int]], lose: Callable[[], object] | None = None
) -> Rows:
    """Run until there were enough kills, one each time that parts were finished or after two seconds."""
    killed: list[int] = []
    runs, worst, members = 0, 0.0, set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table, _ = _undisturbed(folder)
        wanted = pq.read_table(folder / "whole.parquet")
        while len(killed) < kills:
            over, advanced = threading.Event(), threading.Event()
            pause = 0.02 if engine.name == "local" else 2.0

            def disturb(
                over: threading.Event = over, advanced: threading.Event = advanced, pause: float = pause
            ) -> None:
                while len(killed) < kills and not over.wait(pause):
                    if engine.name == "local" and not advanced.is_set():
                        continue
                    found = pids()
                    if found and lose is not None:
                        lose()
                        killed.append(0)
                    elif found:
                        os.kill(found[0], signal.SIGKILL)
                        killed.append(found[0])
                        advanced.clear()

            thread = threading.Thread(target=disturb)
            thread.start()
            output = folder / f"{runs}.parquet"
            try:
                options = {"by": "set", "part_size": PART, "engine": engine}
                distributed.pool(model(), table, output, progress=lambda *_, step=advanced: step.set(), **options)
            finally:
                over.set()
                thread.join()
            found = pq.read_table(output)
            members.add(int(np.sum(found["members"])))
            runs += 1
            for column in found.column_names:
                apart = np.array(found[column].to_pylist()) - np.array(wanted[column].to_pylist())
                worst = float(np.max([worst, np.abs(apart).max()]))  # also where it is NaN
    what = "one of two machines lost" if lose else "SIGKILL to workers"
    row: dict[str, object] = {"case": f"{engine.name}: {what}", "kills": len(killed), "runs": runs}
    return [row | {"members": sorted(members), "of": ROWS, "largest difference": worst}]


def _processes() -> list[tuple[int, int, str]]:
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    lines = (line.split(maxsplit=2) for line in listed.splitlines()[1:])
    return [(int(pid), int(parent), words) for pid, parent, words in lines]


def _children(pid: int, word: str) -> list[int]:
    """Children of a process with a word in their command line."""
    return [child for child, parent, words in _processes() if parent == pid and word in words]


CASES: dict[str, Callable[..., Rows]] = {
    case.__name__: case for case in (local_workers, local_driver, ray_workers, spark_workers)
}

if __name__ == "__main__":
    main(CASES, sys.argv[1:])
