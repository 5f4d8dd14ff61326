"""Outputs without each member, against the model on the set without it."""

import pytest
import torch
from hypothesis import given, settings

from deepsets import Sets, nn
from tests.deepsets.nn.test_deepset import POOLS, WIDTH, context, make
from tests.strategies import assert_near, keep, ragged_batches


@pytest.mark.parametrize("pool", [*POOLS, "min", "gated"], ids=str)
@pytest.mark.parametrize("condition", [None, "both"])
@given(sets=ragged_batches(WIDTH, dtypes=[torch.float64], index=False))
@settings(max_examples=5)
def test_leaving_one_member_out_equals_the_output_for_the_set_without_it(condition, pool, sets):
    if sets.weights is not None:  # multiplicities: what fractions leave is less exact the smaller it is
        sets = Sets(sets.values, sets.offsets, None, sets.weights.ceil())
    model, z = make(pool, condition, size=True), context(sets, condition)
    found = nn.leave_one_out(model, sets, z)
    assert len(found) == sets.total
    for n in range(0, sets.total, 7):
        b = int(sets.set_ids[n])
        rest = keep(sets, torch.arange(sets.total) != n)[[b]]
        assert_near(found[n], model(rest, None if z is None else z[[b]])[0], 1e6 if "std" in pool else 100)
