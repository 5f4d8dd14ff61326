"""Metrics of the experiments."""

import pytest
import torch

from paper.metrics import exact_sums


def test_accuracy_wants_one_answer_for_each_set():
    with pytest.raises(ValueError, match=r"shapes \(3, 1\) and \(3,\)"):
        exact_sums(torch.zeros(3, 1), torch.zeros(3))
