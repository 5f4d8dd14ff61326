"""What grows how: seconds of `pool` over rows and states, of `expand` over candidates, and a fitted model of both.

python -m benchmarks.scale_growth [FACTOR] makes all tables larger or smaller.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.scale_data import model, shards
from deepsets import scale
from deepsets.expand import SetExpander

POINTS = ((250_000, 10), (1_000_000, 10), (2_000_000, 10), (250_000, 25_000), (1_000_000, 50_000), (1_000_000, 200_000))
CANDIDATES = (250_000, 1_000_000, 2_000_000)


def run(factor: float = 1.0) -> list[dict[str, object]]:
    engine, out = scale.Engine(workers=1), []
    points, seconds = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, (rows, sets) in enumerate((int(r * factor), max(1, int(s * factor))) for r, s in POINTS):
            table = shards(folder / str(number), rows, sets, files=4)
            start = time.perf_counter()
            scale.pool(model(), table, folder / f"{number}.parquet", by="set", engine=engine)
            seconds.append(time.perf_counter() - start)
            states = 4 * int(sets * (1 - np.exp(-rows / 4 / sets)))  # a set that a file holds gives it a state
            points.append([1.0, rows, states])
            size = (folder / f"{number}.parquet").stat().st_size
            row = {"case": f"pool, {rows:,} rows, {sets:,} sets", "seconds": seconds[-1], "partial states": states}
            out.append(row | {"bytes a state": size / sets})
        base, row_s, state_s = np.linalg.lstsq(np.array(points), np.array(seconds), rcond=None)[0]
        worst = float(np.abs(np.array(points) @ [base, row_s, state_s] / seconds - 1).max())
        fitted = {"case": "fitted: seconds = start + rows * r + partial states * s, one core", "start": float(base)}
        out.append(fitted | {"r us": 1e6 * float(row_s), "s us": 1e6 * float(state_s), "worst point is off by": worst})
        out += _candidates(folder, factor, engine)
    return out


def _candidates(folder: Path, factor: float, engine: scale.Engine) -> list[dict[str, object]]:
    rng = np.random.default_rng(0)
    known = rng.standard_normal((100, 32), dtype=np.float32)
    sets = [list(range(i, i + 10)) for i in range(0, 90, 3)]
    expander = SetExpander(embedding=0, epochs=1, random_state=0).fit(sets, items=known)
    out, counts, seconds = [], [], []
    for count in (int(c * factor) for c in CANDIDATES):
        path = folder / f"candidates-{count}.parquet"
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.standard_normal(count * 32, dtype=np.float32)), 32)
        pq.write_table(pa.table({"name": np.arange(count), "v": vectors}), path, 100_000)
        start = time.perf_counter()
        scale.expand(expander, [0, 1, 2], path, 10, element="name", engine=engine)
        counts.append(count)
        seconds.append(time.perf_counter() - start)
        out.append({"case": f"expand, {count:,} candidates of 32 features", "seconds": seconds[-1]})
    slope, base = np.polyfit(counts, seconds, 1)
    row: dict[str, object] = {"case": "fitted: seconds = start + candidates * c, one core", "start": float(base)}
    return [*out, row | {"c us": 1e6 * float(slope)}]


if __name__ == "__main__":
    for row in run(*map(float, sys.argv[1:])):
        print(row)
