"""Scores of predictions, against the arithmetic written out."""

import numpy as np
import pytest

from deepsets.cli.metrics import calibration, class_codes, class_scores, number_scores

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
