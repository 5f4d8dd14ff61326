"""Models on padded arrays: the padding is never seen."""

import pytest
import torch
from hypothesis import given

from deepsets import Sets, nn
from tests.strategies import assert_near, ragged_batches

WIDTH = 3


def model() -> nn.PaddedInput:
    torch.manual_seed(0)
    return nn.PaddedInput(nn.DeepSet(nn.mlp(WIDTH, 8, 8), nn.mlp(8, 2), pool="mean"))


@given(ragged_batches(WIDTH, weights=False, dtypes=[torch.float32]))
def test_the_output_is_that_of_each_set_without_padding(sets):
    net = model()
    expected = torch.stack([net.model.rho(net.model.phi(x).mean(0) if len(x) else torch.zeros(8)) for x in sets])
    padded, mask = sets.to_padded(fill=1e6)
    assert_near(net(padded, mask), expected, 10)
    assert_near(net(padded, mask.float()), expected, 10)
    assert_near(net(sets.to_padded(torch.nan)[0]), expected, 10)


@given(ragged_batches(WIDTH, weights=False, dtypes=[torch.float64]))
def test_set_layers_return_padded_members(sets):
    layer = nn.Equivariant(WIDTH, 5).double()
    padded, mask = sets.to_padded(torch.nan)
    out = nn.PaddedInput(layer)(padded)
    assert out.shape == (*mask.shape, 5)
    assert not out[~mask].any()
    assert torch.equal(out[mask], layer(sets).values)


def test_gradients_reach_the_elements_and_not_the_padding():
    x = torch.randn(2, 4, WIDTH, requires_grad=True)
    mask = torch.tensor([[True, True, False, False], [True, True, True, False]])
    model()(x, mask).sum().backward()
    assert bool((x.grad[mask] != 0).any(-1).all())
    assert not x.grad[~mask].any()


def test_z_is_passed_on():
    net = nn.PaddedInput(nn.DeepSet(nn.mlp(WIDTH, 8), nn.mlp(10, 1), condition="rho"))
    x, z = torch.randn(2, 4, WIDTH), torch.randn(2, 2)
    assert torch.equal(net(x, z=z), net.model(Sets.from_list(list(x)), z))


def test_a_partly_missing_element_is_an_error():
    x = torch.zeros(1, 2, WIDTH)
    x[0, 1, 0] = torch.nan
    with pytest.raises(ValueError, match=r"values must be finite: set 0, element 1 holds \[nan, 0.0, 0.0\]"):
        model()(x)
