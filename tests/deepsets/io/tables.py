"""Small tables in every format, and readers for tests."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from deepsets.io.columns import shape_of
from deepsets.io.files import File
from deepsets.io.reader import read

pa = pytest.importorskip("pyarrow")
csv, feather, parquet = (pytest.importorskip(f"pyarrow.{name}") for name in ("csv", "feather", "parquet"))

RNG = np.random.default_rng(0)
SIZES = [3, 1, 7, 2, 2, 5, 1, 9]
IDS = np.repeat([f"s{i}" for i in range(len(SIZES))], SIZES)
A, B = RNG.normal(size=(2, len(IDS)))
LONG = pa.table({"box": IDS, "a": A, "b": B, "k": np.repeat(np.arange(len(SIZES)), SIZES)})
SUFFIXES = [".parquet", ".pq", ".csv", ".arrow", ".feather", ".ipc", ".jsonl", ".ndjson", ".npz"]


def write(table, path: Path) -> Path:
    kind = path.suffix
    if kind in (".parquet", ".pq"):
        parquet.write_table(table, path, row_group_size=4)
    elif kind == ".csv":
        csv.write_csv(table, path)
    elif kind in (".jsonl", ".ndjson"):
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    elif kind == ".npz":
        np.savez(path, **{n: np.array(table[n].to_pylist()) for n in table.column_names})
    else:
        feather.write_feather(table, path, compression="uncompressed", chunksize=4)
    return path


def opened(path: Path, by="box", features=None, z=(), target=(), numbers=()):
    file = File(path, numbers, [by] if by else [])
    shape = shape_of(file)
    return file, shape, shape.choose(by, features, list(z), list(target))


def whole(path: Path, **parts):
    return read(*opened(path, **parts))


def nested(**columns):
    """Lists of the rows of each set."""
    ends = np.cumsum(SIZES)[:-1]
    return pa.table({n: [part.tolist() for part in np.split(c, ends)] for n, c in columns.items()})


def same(sets, wanted=None) -> None:
    wanted = torch.from_numpy(np.stack([A, B], axis=1)) if wanted is None else wanted
    assert torch.equal(sets.X.values, wanted)
    assert sets.sizes.tolist() == SIZES
    assert sets.X.offsets.tolist() == [0, *np.cumsum(SIZES)]


def joined(parts):
    parts = list(parts)
    ids = [i for part in parts for i in part.ids.to_pylist()]
    return ids, torch.cat([p.X.values for p in parts]), np.concatenate([p.sizes for p in parts]), len(parts)
