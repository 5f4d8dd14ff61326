"""Sequences of layers, and plain networks."""

import pytest
import torch

from deepsets import Sets, nn
from deepsets.nn import sequential
from tests.deepsets.nn.oracles import WIDTH


def test_a_sequence_takes_set_layers_and_plain_modules():
    first, last = nn.Equivariant(WIDTH, 8), torch.nn.Linear(8, 2)
    sets = Sets.from_list([torch.randn(3, WIDTH), torch.randn(2, WIDTH)])
    expected = last(first(sets).values.relu())
    assert torch.equal(nn.SetSequential(first, torch.nn.ReLU(), last)(sets).values, expected)


def test_a_network_needs_two_widths():
    with pytest.raises(ValueError, match=r"the width of its input and of its output, found \[3\]"):
        nn.mlp(3)


def test_dropout_is_applied_between_the_layers_of_a_network_only():
    kinds = [type(layer).__name__ for layer in nn.mlp(3, 4, 5, dropout=0.1)]
    assert kinds == ["Linear", "ReLU", "Dropout", "Linear"]


@pytest.mark.parametrize(("inputs", "outputs"), [(64, 128), (128, 48), (3, 700)])
def test_a_large_linear_map_equals_a_product_by_hand(monkeypatch, inputs, outputs):
    layer, x = sequential.Linear(inputs, outputs), torch.randn(600, inputs, requires_grad=True)
    grad = torch.randn(600, outputs)
    if sequential._onednn() is None:  # another processor: the same code with torch's own product
        monkeypatch.setattr(sequential, "_onednn", lambda: lambda x, w, b, *_: torch.nn.functional.linear(x, w, b))
    y = layer(x)
    assert type(y.grad_fn).__name__ == "_ProductBackward"
    torch.testing.assert_close(y, (x.double() @ layer.weight.double().T + layer.bias.double()).float())
    y.backward(grad)
    near = {"rtol": 1e-4, "atol": 1e-3}
    torch.testing.assert_close(x.grad, (grad.double() @ layer.weight.double()).float(), **near)
    torch.testing.assert_close(layer.weight.grad, (grad.double().T @ x.double()).float(), **near)
    torch.testing.assert_close(layer.bias.grad, grad.double().sum(0).float(), **near)


def test_a_large_linear_map_can_be_differentiated_twice():
    layer, x = sequential.Linear(64, 64), torch.randn(600, 64, requires_grad=True)
    (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    first.sum().backward()
    by_hand = 2 * layer.weight.T @ (layer.weight @ torch.ones(64))
    torch.testing.assert_close(x.grad, by_hand.expand(600, -1), rtol=1e-4, atol=1e-4)


def test_other_precisions_layouts_and_transforms_use_the_product_of_torch():
    layer, x = sequential.Linear(64, 64), torch.randn(600, 64)
    plain = torch.nn.functional.linear(x, layer.weight, layer.bias)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    torch.testing.assert_close(layer(x.T.contiguous().T), plain)
    torch.testing.assert_close(layer(x.reshape(2, 300, 64)), plain.reshape(2, 300, 64))
    torch.testing.assert_close(torch.func.vmap(layer)(x[None])[0], plain)
    assert layer.double()(x.double()).dtype == torch.float64
