"""Damaged model folders: `ModelFolderError`, or a model that works. The long form: benchmarks.attack."""

import pytest

from benchmarks.attack import run_attack


@pytest.mark.slow
def test_damaged_model_folders_are_refused_with_a_sentence():
    outcomes, failures = run_attack("folders", 300, batch=300)
    assert failures == []
    assert outcomes["sentence"] > 100
