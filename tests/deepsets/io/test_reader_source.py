"""Tables as a model needs them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from deepsets import nn
from deepsets.io import TableError
from deepsets.io.reader import Source
from deepsets.io.storage import list_files

from .tables import LONG, pa, write


def test_a_network_gets_its_own_precision_and_no_missing_values(tmp_path):
    path = write(LONG, tmp_path / "t.parquet")
    model = nn.DeepSet(nn.mlp(2, 4), nn.mlp(4, 1))
    source = Source(model, [path], "box", features=["a", "b"])
    assert source.check(source.read()).X.values.dtype == torch.float32
    assert Source(None, [path], "box", features=["a", "b"]).read().X.values.dtype == torch.float64
    write(pa.table({"box": ["u", "u"], "a": [1.0, None], "b": [1.0, 2.0]}), path)
    source = Source(model, [path], "box")
    with pytest.raises(TableError, match=r"the first is 'a' of set 'u', member 1, missing"):
        source.check(source.read())


def test_columns_of_any_kind_are_passed_on_with_their_names(tmp_path):
    table = pa.table({"box": ["u", "v", "u"], "a": [1.0, 2.0, None], "w": ["x", "y", "z"], "k": ["p", "q", "p"]})
    source = Source(None, [write(table, tmp_path / "t.parquet")], "box", z=["k"])
    sets = source.read()
    assert sets.X.to_pylist() == [[{"a": 1.0, "w": "x"}, {"a": None, "w": "z"}], [{"a": 2.0, "w": "y"}]]
    assert sets.z.to_pydict() == {"k": ["p", "q"]}
    X, z = sets.named(source.columns)
    assert X is sets.X and z is sets.z


def test_numbers_and_tokens_can_be_named(tmp_path):
    path = write(pa.table({"box": [0, 0, 1], "a": [1, 2, 3], "b": [True, False, True]}), tmp_path / "t.parquet")
    source = Source(None, [path], "box")
    X, _ = source.read().named(source.columns)
    assert X.to_pylist() == [[{"a": 1.0, "b": 1.0}, {"a": 2.0, "b": 0.0}], [{"a": 3.0, "b": 1.0}]]
    write(pa.table({"box": [0, 0, 1], "w": ["x", "y", "z"]}), path)
    source = Source(None, [path], "box")
    assert source.read().X == [["x", "y"], ["z"]]
    assert source.read().named(source.columns)[0].to_pylist() == [[{"w": "x"}, {"w": "y"}], [{"w": "z"}]]


def test_wide_vectors_are_read_once(tmp_path):
    width = 20_000  # one by one this would take minutes
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(3.0 * width)), width)
    path = tmp_path / "t.parquet"
    write(pa.table({"box": [0, 0, 1], "x": vectors}), path)
    sets = Source(None, [path], "box").read()
    assert np.array_equal(sets.X.values.numpy(), np.arange(3.0 * width).reshape(3, width))


def test_the_files_of_a_folder_are_its_parquet_files(tmp_path):
    for name in ("b.parquet", "a.pq", "_hidden.parquet", ".tmp.parquet", "notes.txt"):
        (tmp_path / name).touch()
    assert [Path(path).name for path in list_files(tmp_path)] == ["a.pq", "b.parquet"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match="holds no Parquet files"):
        list_files(tmp_path / "empty")
