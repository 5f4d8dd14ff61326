"""Local, Ray and all rows at once in memory: the largest relative difference, over partitionings and row orders."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.scale_data import FEATURES, model, shards
from deepsets import Sets, scale


def run(rows: int = 1_000_000, ray: bool = True) -> list[dict[str, object]]:
    net, out = model(), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = pa.concat_tables([pq.read_table(f) for f in sorted(shards(folder / "0", rows, 1000).iterdir())])
        wanted = _in_memory(net, table)
        rng = np.random.default_rng(1)
        cases = {"one file": (1, rows, False), "8 files": (8, 20_000, False), "3 files, other order": (3, 5_000, True)}
        for number, (case, (files, group, shuffle)) in enumerate(cases.items(), 1):
            (folder / str(number)).mkdir()
            mixed = table.take(pa.array(rng.permutation(rows))) if shuffle else table
            for i, rows_of in enumerate(np.array_split(np.arange(rows), files)):
                part = mixed.slice(int(rows_of[0]), len(rows_of))
                pq.write_table(part, folder / str(number) / f"{i}.parquet", group)
            for engine in ["local", *(["ray"] if ray else [])]:
                path = folder / f"{number}-{engine}.parquet"
                options = {"by": "set", "part": max(group, rows // 10), "engine": scale.Engine(engine, workers=2)}
                scale.predict(net, folder / str(number), path, **options)
                found = pq.read_table(path)["prediction"].to_numpy()
                worst = float((np.abs(found - wanted) / np.abs(wanted).clip(1e-30)).max())
                overall = float(np.abs(found - wanted).max() / np.abs(wanted).max())
                row = {"case": case, "engine": engine, "largest relative difference": worst}
                out.append(row | {"relative to the largest answer": overall})
    return out


def _in_memory(net: torch.nn.Module, table: pa.Table) -> np.ndarray:
    """The model in float64 on all sets at once."""
    ids = table["set"].to_numpy()
    order = np.argsort(ids, kind="stable")
    values = np.stack([table[f"x{i}"].to_numpy() for i in range(FEATURES)], axis=1)[order]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(ids))])
    with torch.no_grad():
        answers = net.double()(Sets(torch.from_numpy(values).double(), torch.from_numpy(offsets)))
    net.float()
    return answers[:, 0].numpy()


if __name__ == "__main__":
    for row in run(*(int(float(a)) for a in sys.argv[1:2]), ray="--no-ray" not in sys.argv):
        print(row)
