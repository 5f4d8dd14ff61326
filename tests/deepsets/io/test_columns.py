"""Roles of columns, and layouts of tables."""

import numpy as np
import pytest
import torch

from deepsets.io.reader import read

from .tables import LONG, SIZES, A, B, nested, opened, pa, parquet, same, whole, write


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".jsonl"])
def test_a_list_column_per_feature_is_one_row_per_set(suffix, tmp_path):
    table = nested(a=A, b=B).append_column("name", [[f"s{i}" for i in range(8)]])
    same(whole(write(table, tmp_path / f"table{suffix}"), by="name"))
    numbered = whole(write(table, tmp_path / f"table{suffix}"), by=None)
    same(numbered)
    assert numbered.ids.to_pylist() == list(range(8))


def vectors(kind: str):
    """One column with both features."""
    flat = pa.array(np.stack([A, B], axis=1).reshape(-1))
    inner = pa.FixedSizeListArray.from_arrays(flat, 2) if kind == "fixed" else _pairs(flat)
    return pa.table({"x": pa.ListArray.from_arrays(pa.array([0, *np.cumsum(SIZES)], pa.int32()), inner)})


def _pairs(flat):
    return pa.ListArray.from_arrays(pa.array(np.arange(0, len(flat) + 1, 2), pa.int32()), flat)


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [("fixed", ".parquet"), ("fixed", ".feather"), ("lists", ".parquet"), ("lists", ".feather"), ("lists", ".jsonl")],
)
def test_one_column_of_lists_of_vectors_is_seen_as_its_entries(kind, suffix, tmp_path):
    parts = opened(write(vectors(kind), tmp_path / f"table{suffix}"), by=None)
    assert parts[2].features == ["x_0", "x_1"]
    same(read(*parts))
    swapped = whole(tmp_path / f"table{suffix}", by=None, features=["x_1", "x_0"])
    same(swapped, torch.from_numpy(np.stack([B, A], axis=1)))


def test_columns_that_are_missing_or_have_two_roles_are_errors(tmp_path):
    path = write(LONG, tmp_path / "t.parquet")
    for parts in ({"by": "bax"}, {"features": ["bax"]}, {"z": ["bax"]}, {"target": ["bax"]}):
        with pytest.raises(ValueError, match=r"no column 'bax'; it has: box, a, b, k"):
            opened(path, **parts)
    with pytest.raises(ValueError, match="--by must say which column names the set"):
        opened(path, by=None)
    with pytest.raises(ValueError, match="'a' cannot be a feature and"):
        opened(path, features=["a"], target=["a"])
    with pytest.raises(ValueError, match="no feature columns are left"):
        opened(path, z=["a", "b"], target=["k"])


def test_row_labels_that_pandas_writes_are_no_features(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = LONG.to_pandas()
    frame.index = pd.Index(frame.index.to_numpy() * 2 % 7)  # not a plain range: it is written as a column
    frame.to_parquet(tmp_path / "t.parquet")
    assert "__index_level_0__" in parquet.read_schema(tmp_path / "t.parquet").names
    assert opened(tmp_path / "t.parquet")[2].features == ["a", "b", "k"]
