"""Two workers of Ray against one, on work that takes more than a minute with one; the start of Ray is not counted.

python -m benchmarks.scale_workers [SECONDS] takes another length.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import ray
import torch

from benchmarks.scale_data import model, shards
from deepsets import distributed as scale


def run(seconds: float = 100.0) -> list[dict[str, object]]:
    net, taken = model(), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = _rows(folder, seconds)
        table = shards(folder / "table", rows, 1000, files=16)
        for workers in (1, 2):
            ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
            engine, path = scale.Engine("ray", workers=workers), folder / f"{workers}.parquet"
            start = time.perf_counter()
            scale.pool(net, table, path, by="set", engine=engine, part=rows // 32)
            taken[workers] = time.perf_counter() - start
            ray.shutdown()
        same = (folder / "1.parquet").read_bytes() == (folder / "2.parquet").read_bytes()
    row = {"case": f"pool {rows:,} rows of 16 features, 1000 scattered sets", "engine": "ray", "same bytes": same}
    return [row | {"1 worker s": taken[1], "2 workers s": taken[2], "faster by": taken[1] / taken[2]}]


def _rows(folder: Path, seconds: float) -> int:
    """As many as take one thread about so long."""
    probe, net, few = shards(folder / "probe", 400_000, 1000, files=1), model(), scale.Engine(workers=1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    scale.pool(net, probe, folder / "warm.parquet", by="set", engine=few)
    start = time.perf_counter()
    scale.pool(net, probe, folder / "probe.parquet", by="set", engine=few)
    torch.set_num_threads(threads)
    return int(400_000 * seconds / (time.perf_counter() - start))


if __name__ == "__main__":
    for row in run(*map(float, sys.argv[1:])):
        print(row)
