"""What the scale benchmarks share: tables of scattered sets, and a model for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from deepsets import nn

FEATURES = 16


def model(width: int = 128) -> nn.DeepSet:
    """As large as an estimator: phi of three layers, max, mean, min and deviation."""
    torch.manual_seed(0)
    phi = torch.nn.Sequential(*nn.mlp(FEATURES, width, width, width), torch.nn.ReLU())
    return nn.DeepSet(phi, nn.mlp(4 * width + 1, width, 1), pool=["max", "mean", "min", "std"], append_size=True).eval()


def shards(folder: Path, rows: int, sets: int, files: int = 8, *, scattered: bool = True, group: int = 50_000) -> Path:
    """`rows` rows of `sets` sets, in row groups of `group`; where scattered, in any order over all files."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(FEATURES)]
    each = -(-rows // files)
    for number in range(files):
        writer = None
        for start in range(number * each, min((number + 1) * each, rows), 250_000):
            count = min(250_000, min((number + 1) * each, rows) - start)
            ids = rng.integers(0, sets, count) if scattered else np.arange(start, start + count) * sets // rows
            values = rng.standard_normal((count, FEATURES), dtype=np.float32)
            table = pa.table({"set": ids, **{name: values[:, i] for i, name in enumerate(names)}})
            writer = writer or pq.ParquetWriter(folder / f"{number:03d}.parquet", table.schema)
            writer.write_table(table, group)
        if writer is not None:
            writer.close()
    return folder
