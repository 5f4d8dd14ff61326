"""Workers, drivers and a machine killed in the middle: how often the result is the very same.

python -m benchmarks.scale_crash [KILLS] takes another number; --no-ray leaves Ray out.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.scale_data import model, shards
from deepsets import distributed as scale

ROWS, SETS, PART = 400_000, 500, 10_000

DRIVER = """
import pickle, sys
from pathlib import Path
from deepsets import distributed as scale
net = pickle.loads(Path(sys.argv[1]).read_bytes())
if __name__ == "__main__":
    print("here", flush=True)
    engine = scale.Engine(workers=1)
    facts = scale.pool(net, sys.argv[2], sys.argv[3], by="set", engine=engine, part=int(sys.argv[4]))
    print(facts["found_done"], facts["members"])
"""


def run(kills: int = 10, ray: bool = True) -> list[dict[str, object]]:
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = shards(folder / "table", ROWS, SETS, files=4, group=PART)
        options: dict[str, Any] = {"by": "set", "part": PART}
        start = time.perf_counter()
        scale.pool(model(), table, folder / "whole.parquet", engine=scale.Engine(workers=1), **options)
        whole, seconds = (folder / "whole.parquet").read_bytes(), time.perf_counter() - start
        out = [_local(folder, table, whole, kills, chance, options)]
        out.append(_driver(folder, table, whole, kills, chance, seconds))
        if ray:
            out += _ray(folder, table, whole, kills, chance, options)
    if any(row["kills"] != (1 if "machine" in str(row["case"]) else kills) for row in out):
        raise RuntimeError(f"not all kills came while there was work: {out}")
    return out


def _local(
    folder: Path, table: Path, whole: bytes, kills: int, chance: random.Random, options: dict[str, Any]
) -> dict[str, object]:
    killed: list[int] = []
    at = sorted(chance.sample(range(1, 38), kills))
    seen: list[int] = []

    def kill(_: int) -> None:
        seen.append(1)
        child = next(iter(multiprocessing.active_children()), None)
        if child is not None and child.pid and len(killed) < kills and len(seen) >= at[len(killed)]:
            os.kill(child.pid, signal.SIGKILL)
            killed.append(child.pid)

    engine = scale.Engine(workers=2)
    facts = scale.pool(model(), table, folder / "local.parquet", engine=engine, progress=kill, **options)
    same = (folder / "local.parquet").read_bytes() == whole
    return {"case": "local worker, SIGKILL", "kills": len(killed), "members": facts["members"], "same bytes": same}


def _driver(
    folder: Path, table: Path, whole: bytes, kills: int, chance: random.Random, seconds: float
) -> dict[str, object]:
    (folder / "net").write_bytes(pickle.dumps(model()))
    same, absent, taken_up = 0, 0, []
    for number in range(kills):
        output = folder / f"driver-{number}.parquet"
        command = [sys.executable, "-c", DRIVER, *map(str, (folder / "net", table, output, PART))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.uniform(0.1, 0.8) * seconds)
        process.kill()
        process.communicate()
        absent += not output.exists() and (folder / f"{output.name}.parts" / "_manifest.json").is_file()
        done = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        taken_up.append(int(done[1]))
        same += output.read_bytes() == whole
    row: dict[str, object] = {"case": "driver, SIGKILL, then run again", "kills": kills}
    row |= {"recognisably incomplete": absent, "same bytes": same}
    return row | {"parts found done": f"{min(taken_up)}..{max(taken_up)} of {ROWS // PART}"}


def _ray(
    folder: Path, table: Path, whole: bytes, kills: int, chance: random.Random, options: dict[str, Any]
) -> list[dict[str, object]]:
    import ray
    from ray.cluster_utils import Cluster

    out: list[dict[str, object]] = []
    for case in ("actor, SIGKILL", "one of two machines lost"):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        other = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        hits: list[object] = []
        wanted = kills if "actor" in case else 1
        at = sorted(chance.sample(range(1, 38), wanted))
        trouble = _trouble(cluster, None if "actor" in case else other, at, hits)
        path = folder / f"ray-{len(out)}.parquet"
        engine = scale.Engine("ray", workers=2)
        facts = scale.pool(model(), table, path, engine=engine, progress=trouble, **options)
        row = {"case": f"ray: {case}", "kills": len(hits), "members": facts["members"]}
        out.append(row | {"same bytes": path.read_bytes() == whole})
        ray.shutdown()
        cluster.shutdown()
    return out


def _trouble(cluster: Any, node: Any, at: list[int], hits: list[object]) -> Callable[[int], None]:
    """Kills an actor, or removes a node, after so many parts."""
    seen: list[int] = []

    def trouble(_: int) -> None:
        seen.append(1)
        if len(hits) == len(at) or len(seen) < at[len(hits)]:
            return
        if node is not None:
            cluster.remove_node(node, allow_graceful=False)
            hits.append("node")
        elif (pid := _actor(cluster)) is not None:
            os.kill(pid, signal.SIGKILL)
            hits.append(pid)

    return trouble


def _actor(cluster: Any) -> int | None:
    """The process of an actor of this cluster, if there is one at this moment."""
    raylets = {str(node.all_processes["raylet"][0].process.pid) for node in cluster.list_all_nodes()}
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    found = (line.split(maxsplit=2) for line in listed.splitlines()[1:])
    return next((int(pid) for pid, parent, words in found if parent in raylets and "MapWorker" in words), None)


if __name__ == "__main__":
    for row in run(*map(int, [a for a in sys.argv[1:] if a.isdigit()]), ray="--no-ray" not in sys.argv):
        print(row)
