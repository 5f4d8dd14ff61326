"""Damaged tables are read or refused with a sentence; no signal, no traceback. Long form: benchmarks.attack."""

import random

import pytest

from benchmarks.attack import mutate, run_attack

pytest.importorskip("pyarrow")


@pytest.mark.slow
def test_damaged_tables_are_read_or_refused_with_a_sentence():
    outcomes, failures = run_attack("tables", 240, batch=240)
    assert failures == []
    assert outcomes["sentence"] > 50


def test_damage_is_reproducible_and_changes_the_file():
    data = bytes(range(256)) * 4
    assert mutate(data, random.Random(3)) == mutate(data, random.Random(3))
    assert sum(mutate(data, random.Random(seed)) != data for seed in range(100)) > 90
