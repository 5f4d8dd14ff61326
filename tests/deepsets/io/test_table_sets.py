"""Rows of tables to sets."""

import numpy as np
import pytest

from deepsets.io.reader import read, stream

from .tables import IDS, LONG, RNG, SIZES, A, B, opened, pa, whole, write


def test_rows_of_a_set_need_not_be_adjacent_when_all_is_read(tmp_path):
    order = RNG.permutation(len(LONG))
    sets = whole(write(LONG.take(order), tmp_path / "t.parquet"), features=["a"], target=["b"])
    for name, values in zip(sets.ids.to_pylist(), sets.X, strict=True):
        assert sorted(values[:, 0].tolist()) == sorted(A[name == IDS].tolist())
    assert [round(float(a), 5) for a in sets.X.values[:, 0]] == [
        round(float(A[B == b][0]), 5) for b in sets.targets[0].to_pylist()
    ]


def test_a_single_column_of_strings_is_tokens(tmp_path):
    table = pa.table({"box": IDS, "word": [f"w{i % 5}" for i in range(len(IDS))]})
    for suffix in (".parquet", ".csv"):
        sets = whole(write(table, tmp_path / f"t{suffix}"))
        assert [len(tokens) for tokens in sets.X] == SIZES
        assert sets.X[0] == ["w0", "w1", "w2"]


def test_categories_decimals_and_nulls_are_read(tmp_path):
    table = pa.table(
        {
            "box": pa.array(["u", "u", "v"]).dictionary_encode(),
            "a": pa.array([1, None, 3]),
            "b": pa.array([True, False, None]),
            "c": pa.array([1, 2, 3], pa.decimal128(5, 2)),
        }
    )
    parts = opened(write(table, tmp_path / "t.parquet"))
    for sets in (read(*parts), *stream(*parts)):
        assert sets.ids.to_pylist() == ["u", "v"]
        assert np.array_equal(sets.X.values, [[1, 1, 1], [np.nan, 0, 2], [3, np.nan, 3]], equal_nan=True)


def test_mixed_columns_and_missing_strings_keep_their_values(tmp_path):
    sets = whole(write(LONG.append_column("word", [["x"] * len(IDS)]), tmp_path / "t.parquet"))
    assert [member["word"] for members in sets.X.to_pylist() for member in members] == ["x"] * len(IDS)
    sets = whole(write(pa.table({"box": ["u", "u"], "w": ["x", None]}), tmp_path / "w.parquet"))
    members = sets.X.to_pylist()[0] if hasattr(sets.X, "to_pylist") else sets.X[0]
    assert [m["w"] if isinstance(m, dict) else m for m in members] == ["x", None]


def test_columns_with_the_wrong_content_are_errors(tmp_path):
    path = write(LONG.append_column("word", [["x"] * len(IDS)]), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"'a' must have one value per set, but it changes within set '\w+'"):
        whole(path, features=["b"], z=["a"])
    path = write(pa.table({"box": ["u", None], "a": [1.0, 2.0]}), tmp_path / "n.parquet")
    parts = opened(path)
    for way in (lambda: read(*parts), lambda: list(stream(*parts))):
        with pytest.raises(ValueError, match="row 1 has no value in the set column 'box'"):
            way()


def test_nested_columns_with_the_wrong_content_are_errors(tmp_path):
    def path(**columns):
        return write(pa.table(columns), tmp_path / "t.parquet")

    with pytest.raises(ValueError, match=r"lists of 'b' and 'a' differ in length"):
        whole(path(a=[[1.0], [2.0]], b=[[1.0, 2.0], []]), by=None)
    with pytest.raises(ValueError, match=r"row 1 of 'a' is null: an empty list is an empty set"):
        whole(path(a=[[1.0], None]), by=None)
    with pytest.raises(ValueError, match=r"members in column 'a' have 1 and 2 numbers"):
        whole(path(a=[[[1.0], [1.0, 2.0]]]), by=None)
    with pytest.raises(ValueError, match=r"'k' is not a list"):
        whole(path(a=[[1.0]], k=[1.0]), by=None, features=["a", "k"])
    with pytest.raises(ValueError, match=r"'a' holds lists: one value per set"):
        whole(path(a=[[1.0]], b=[[1.0]]), by="a")
