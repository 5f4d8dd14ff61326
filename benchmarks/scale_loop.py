"""The local engine against a loop of `predict` over batches that are in memory already. All use all cores.

python -m benchmarks.scale_loop [ROWS] takes another number of rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import deepsets
from benchmarks.scale_data import shards
from deepsets.estimators import SetRegressor
from deepsets.io import File, read, shape_of, stream


def run(rows: int = 8_000_000, repeats: int = 2) -> list[dict[str, object]]:
    sets = rows // 10
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one = next(shards(folder / "one", rows, sets, files=1, scattered=False).iterdir())
        eight = shards(folder / "eight", rows, sets, scattered=False)
        mixed = shards(folder / "mixed", rows, rows // 1000)
        few = File(next(shards(folder / "few", 2000, 200, files=1, scattered=False).iterdir()))
        part = read(few, shape_of(few), shape_of(few).choose("set", None, [], []))
        fitted = SetRegressor(epochs=1, random_state=0, by="set").fit(part.X, [x[:, 0].mean().item() for x in part.X])
        fitted.feature_names_in_ = np.array([f"x{i}" for i in range(16)], dtype=object)
        deepsets.save(fitted, folder / "model")
        seconds: dict[str, list[float]] = {}
        for _ in range(repeats):
            for case, table in (("neighbours", one), ("scattered", mixed)):
                seconds.setdefault(f"loop, {case}", []).append(_loop(fitted, table))
            for case, table in (("one file", one), ("8 files, by states", eight), ("scattered, by states", mixed)):
                seconds.setdefault(case, []).append(_command(folder, table))
    least = {case: min(times) for case, times in seconds.items()}
    out: list[dict[str, object]] = []
    for case, against in (("one file", "neighbours"), ("8 files, by states", "neighbours")):
        row = {"case": f"{case}, {rows:,} rows in {sets:,} sets", "engine s": least[case]}
        out.append(row | {"loop s": least[f"loop, {against}"], "times": least[case] / least[f"loop, {against}"]})
    row = {"case": f"scattered, by states, {rows:,} rows in {rows // 1000:,} sets"}
    row |= {"engine s": least["scattered, by states"], "loop s": least["loop, scattered"]}
    return [*out, row | {"times": least["scattered, by states"] / least["loop, scattered"]}]


def _loop(fitted: SetRegressor, table: Path) -> float:
    """Seconds of predict alone: reading and grouping the rows is not counted."""
    taken = 0.0
    for path in [table] if table.is_file() else sorted(table.iterdir()):
        file = File(path)
        shape = shape_of(file)
        columns = shape.choose("set", None, [], [])
        for part in stream(file, shape, columns) if table.is_file() else [read(file, shape, columns)]:
            start = time.perf_counter()
            fitted.predict(part.X)
            taken += time.perf_counter() - start
    return taken


def _command(folder: Path, table: Path) -> float:
    """Seconds that the command tells: with the start of its processes, reading and writing, without that of Python."""
    command = ["deepsets", "predict", folder / "model", table, "-o", folder / "out.parquet", "--overwrite", "--json"]
    done = subprocess.run([sys.executable, "-m", *map(str, command)], check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["seconds"])


if __name__ == "__main__":
    for row in run(*(int(float(a)) for a in sys.argv[1:])):
        print(row)
