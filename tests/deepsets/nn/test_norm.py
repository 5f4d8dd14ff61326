"""Norms and dropout of sets against their formulas."""

import pytest
import torch
from hypothesis import given

from deepsets import Sets, nn
from tests.deepsets.nn.oracles import WIDTH, randomized
from tests.strategies import assert_near, ragged_batches


@given(ragged_batches(WIDTH))
def test_set_norm_equals_the_formula_on_each_set(sets):
    layer = randomized(nn.SetNorm(WIDTH), sets.dtype)
    for x, y in zip(sets, layer(sets), strict=True):
        if len(x):
            plain = (x - x.mean()) / (x.var(correction=0) + layer.eps).sqrt()
            assert_near(y, plain * layer.weight + layer.bias, 50)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_set_norm_of_equal_sizes_equals_that_of_any_sizes(dtype):
    torch.manual_seed(0)
    layer, x = randomized(nn.SetNorm(WIDTH), dtype), torch.randn(4, 9, WIDTH, dtype=dtype)
    found = []
    for extra in (0, 1):  # one member more in the last set takes the general way
        values = torch.cat([x.flatten(0, 1), x[-1, :extra]]).requires_grad_()
        offsets = torch.tensor([0, 9, 18, 27, 36 + extra])
        y = layer(Sets(values, offsets)).values[:27]
        (grad,) = torch.autograd.grad((y * torch.linspace(-1, 1, y.numel(), dtype=dtype).view_as(y)).sum(), values)
        found.append((y, grad[:27]))
    for fast, slow in zip(*found, strict=True):
        assert_near(fast, slow, 20)


def test_set_norm_keeps_bfloat16_under_autocast():
    layer = nn.SetNorm(WIDTH)
    for sizes in ([6, 6], [5, 7]):
        sets = Sets.from_list([torch.randn(n, WIDTH) for n in sizes])
        with torch.autocast("cpu", torch.bfloat16):
            out = layer(sets.map(torch.Tensor.bfloat16))
        assert out.dtype == torch.bfloat16
        torch.testing.assert_close(out.values.float(), layer(sets).values, rtol=0.05, atol=0.05)


@given(ragged_batches(WIDTH))
def test_standardize_equals_the_formula_on_each_set(sets):
    layer = nn.Standardize()
    for x, y in zip(sets, layer(sets), strict=True):
        if len(x):
            centred = x - x.mean(0)
            # A set whose members differ by rounding only is divided by √eps = 1e-3: an error of 1000 units.
            assert_near(y, centred / (centred.square().mean() + layer.eps).sqrt(), 1000)


def test_a_set_of_equal_members_is_standardized_to_0():
    assert float(nn.Standardize()(Sets.from_list([torch.full((5, 2), 0.3)])).values.abs().max()) < 1e-4


def test_dropout_drops_a_channel_in_all_members_of_a_set_and_keeps_the_expectation():
    torch.manual_seed(0)
    sets = Sets.from_list([torch.ones(n % 3 + 1, 8) for n in range(3000)])
    out = nn.SetDropout(0.25)(sets)
    assert all(torch.equal(x, x[:1].expand_as(x)) for x in out)
    assert out.values.unique().tolist() == pytest.approx([0.0, 4 / 3])
    first = out.values[sets.offsets[:-1]]
    # 24,000 draws: the standard deviation of the mean is 0.0037; five of them.
    assert abs(float(first.mean()) - 1) < 0.019


def test_different_sets_drop_different_channels():
    torch.manual_seed(0)
    out = nn.SetDropout(0.5)(Sets.from_list([torch.ones(2, 30)] * 2))
    assert not torch.equal(out[0], out[1])


@given(ragged_batches(WIDTH))
def test_dropout_is_the_identity_in_eval_mode_and_with_p_0(sets):
    assert nn.SetDropout(0.9).eval()(sets) is sets
    assert nn.SetDropout(0.0)(sets) is sets


@pytest.mark.parametrize("p", [1.0, -0.1])
def test_an_invalid_dropout_probability_is_refused(p):
    with pytest.raises(ValueError, match=rf"the dropout probability must be in \[0, 1\), found {p}"):
        nn.SetDropout(p)
