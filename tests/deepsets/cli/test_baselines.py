"""Summaries of sets and the baselines on them."""

import numpy as np
import pytest

from deepsets.cli.baselines import boosting, constant, summaries
from deepsets.io.columns import shape_of
from deepsets.io.files import File
from deepsets.io.reader import read

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def test_summaries_are_count_mean_deviation_ends_and_shares(tmp_path):
    table = pa.table({"box": [0, 0, 1, 1], "a": [1.0, 3.0, None, 5.0], "w": ["x", "y", "x", "x"]})
    parquet.write_table(table, tmp_path / "t.parquet")
    file = File(tmp_path / "t.parquet")
    shape = shape_of(file)
    sets = read(file, shape, shape.choose("box", None, [], []))
    found = summaries(sets)
    assert found[:, :5].tolist() == [[2, 2, 1, 1, 3], [2, 5, 0, 5, 5]]
    assert found[:, 5].tolist() == [0.5, 1.0]  # the share of "x", the most frequent word


def test_the_constant_baseline_predicts_shares_or_the_mean():
    assert constant(np.array([0, 1, 1, 1]), 2)[0].tolist() == [0.25, 0.75]
    assert constant(np.array([[1.0], [3.0]]), None).tolist() == [[2.0], [2.0]]


def test_boosting_predicts_out_of_fold():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    noise = rng.integers(0, 2, 200)
    assert np.mean(boosting(X, noise, 2).argmax(1) == noise) < 0.65  # a fit to its own targets would be near 1
    y = (X[:, 0] > 0).astype(int)
    assert np.mean(boosting(X, y, 2).argmax(1) == y) > 0.9
    assert np.corrcoef(boosting(X, X[:, :1], None)[:, 0], X[:, 0])[0, 1] > 0.9
