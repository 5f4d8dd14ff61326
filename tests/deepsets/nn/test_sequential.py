"""Sequences of layers, and plain networks."""

import pytest
import torch

from deepsets import Sets, nn
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
