"""Two workers against one, on work that takes a minute or more with one; the start of Ray is not counted.

python -m benchmarks.scale_workers [SECONDS] takes another length.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import ray

from benchmarks.scale_data import model, shards
from deepsets import scale


def run(seconds: float = 70.0) -> list[dict[str, object]]:
    net, out = model(), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        probe = shards(folder / "probe", 200_000, 1000, files=1)
        start = time.perf_counter()
        scale.pool(net, probe, folder / "probe.parquet", by="set", engine=scale.Engine(workers=1))
        rows = max(200_000, int(200_000 * seconds / (time.perf_counter() - start)))
        table = shards(folder / "table", rows, 1000, files=16)
        for engine in ("ray", "local"):
            taken = {}
            for workers in (1, 2):
                if engine == "ray":
                    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
                where = scale.Engine(engine, workers=workers)
                path = folder / f"{engine}-{workers}.parquet"
                start = time.perf_counter()
                scale.pool(net, table, path, by="set", engine=where, part=rows // 32)
                taken[workers] = time.perf_counter() - start
                if engine == "ray":
                    ray.shutdown()
            row = {"case": f"pool {rows:,} rows of 16 features, 1000 scattered sets", "engine": engine}
            out.append(row | {"1 worker s": taken[1], "2 workers s": taken[2], "faster by": taken[1] / taken[2]})
    return out


if __name__ == "__main__":
    for row in run(*map(float, sys.argv[1:])):
        print(row)
