"""Scores of predictions, against the arithmetic written out; summaries of sets and the baselines on them."""

import numpy as np
import pytest

from deepsets.cli.metrics import boosting, calibration, class_codes, class_scores, constant, number_scores, summaries
from deepsets.io.columns import shape_of
from deepsets.io.files import File
from deepsets.io.reader import read

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

CHANCES = np.array([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]])
CODES = np.array([0, 1, 1, 1])


def test_scores_of_two_classes():
    found = class_scores(CHANCES, CODES)
    assert found["accuracy"] == 0.75
    assert found["balanced_accuracy"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["auc"] == 1.0  # every 1 has a higher chance than the 0
    assert found["f1"] == pytest.approx(2 * 1 * (2 / 3) / (1 + 2 / 3))
    assert found["log_loss"] == pytest.approx(-np.log([0.9, 0.6, 0.3, 0.8]).mean())
    # confidences .9 (right), .6 (right), .7 (wrong), .8 (right), each in a bin of its own
    assert found["ece"] == pytest.approx((0.1 + 0.4 + 0.7 + 0.2) / 4)


def test_calibration_bins_hold_every_prediction_once():
    error, bins = calibration(np.array([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]]), np.array([0, 1, 0]))
    assert [b["count"] for b in bins] == [1, 2]
    assert error == pytest.approx((1 * abs(0.5 - 1.0) + 2 * abs(1.0 - 0.5)) / 3)


def test_a_single_class_has_no_auc():
    assert class_scores(CHANCES[1:], CODES[1:])["auc"] is None


def test_scores_of_numbers():
    found = number_scores(np.array([[1.0], [2.0], [4.0]]), np.array([[1.0], [2.0], [3.0]]))
    assert found == {"r2": pytest.approx(0.5), "rmse": pytest.approx((1 / 3) ** 0.5), "mae": pytest.approx(1 / 3)}
    assert number_scores(np.array([[1.0]]), np.array([[2.0]]))["r2"] is None


def test_labels_become_positions_among_the_classes():
    assert class_codes(["b", "a", "b"], np.array(["a", "b"])).tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match="the class 'c' is new; the model knows 'a', 'b'"):
        class_codes(["c"], np.array(["a", "b"]))
    with pytest.raises(ValueError, match="the targets are text such as 'x', but the classes are"):
        class_codes(["x"], np.array([0, 1]))


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
