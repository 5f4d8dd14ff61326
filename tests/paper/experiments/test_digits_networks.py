"""The distribution of a sum of digits, against sums counted out."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from deepsets import Sets
from deepsets.testing import assert_invariant
from paper.datasets.digits import draw
from paper.experiments.digits_networks import Reader, sum_model


@settings(deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 99))
def test_the_distribution_of_sums_equals_the_one_counted_out(sizes, seed):
    source = torch.Generator().manual_seed(seed)
    sets = Sets.from_list([torch.randn(n, 10, generator=source).mul(3).softmax(1) for n in sizes])
    for found, rows in zip(sum_model(nn.Identity(), most=36)(sets), sets, strict=True):
        slow = torch.ones(1, dtype=torch.float64)
        for row in rows.double():  # the distribution of a sum is the convolution of the two
            slow = torch.nn.functional.conv1d(slow[None, None], row.flip(0)[None, None], padding=9)[0, 0]
        assert_close(found[: len(slow)], slow, atol=1e-6, rtol=0)
        assert (found[len(slow) :].abs() < 1e-9).all()  # sums that cannot be reached; none if the set is largest


def test_the_gradient_of_the_likelihood_is_that_of_the_counted_out_one():
    logits = torch.randn(2, 10, dtype=torch.float64, requires_grad=True)
    p = logits.softmax(1)
    fast = sum_model(nn.Identity(), most=18)(Sets(p, torch.tensor([0, 2])))[0, 11].log()
    slow = sum(p[0, d] * p[1, 11 - d] for d in range(2, 10)).log()
    assert_close(torch.autograd.grad(fast, logits, retain_graph=True), torch.autograd.grad(slow, logits))


def test_our_model_is_invariant():
    sets = draw(torch.rand(20, 8, 8, dtype=torch.float64), 6, (1, 10)).materialize()
    assert_invariant(sum_model(Reader(8).eval(), most=90).double(), sets)
