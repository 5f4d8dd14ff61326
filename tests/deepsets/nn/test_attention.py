"""Attention layers against dense attention, one set at a time."""

import pytest
import torch
from hypothesis import given

from deepsets import nn
from tests.deepsets.nn.oracles import WIDTH, randomized, seeds, unweighted
from tests.strategies import assert_near, ragged_batches


def dense_attention(layer, query, memory):
    """Softmax attention of one set, head by head."""
    key, value = layer.key_value(memory).split(WIDTH, dim=-1)
    query = layer.query(query)
    each = WIDTH // layer.num_heads
    heads = []
    for h in range(layer.num_heads):
        c = slice(h * each, (h + 1) * each)
        heads.append(torch.softmax(query[:, c] @ key[:, c].T / each**0.5, dim=-1) @ value[:, c])
    return torch.cat(heads, dim=-1)


@given(ragged_batches(WIDTH))
def test_set_attention_equals_dense_attention_on_each_set(sets):
    layer = randomized(nn.SetAttention(WIDTH, num_heads=2), sets.dtype)
    for x, y in zip(sets, layer(sets), strict=True):
        if len(x):
            h = x + layer.out(dense_attention(layer, layer.norm(x), layer.norm(x)))
            assert_near(y, h + layer.feedforward(h), 50)


@given(ragged_batches(WIDTH))
def test_induced_attention_equals_dense_attention_on_each_set(sets):
    layer = randomized(nn.InducedSetAttention(WIDTH, num_inducing_points=3, num_heads=2), sets.dtype)
    sets = unweighted(sets)
    for x, y in zip(sets, layer(sets), strict=True):
        if len(x):
            summary = seeds(layer.summary, x, torch.ones(len(x), dtype=x.dtype)).reshape(3, WIDTH)
            h = x + layer.out(dense_attention(layer, layer.norm(x), summary))
            assert_near(y, h + layer.feedforward(h), 50)


@pytest.mark.parametrize("layer", [nn.SetAttention, nn.InducedSetAttention])
def test_heads_must_divide_the_features(layer):
    with pytest.raises(ValueError, match=r"num_heads must divide features, found 6 features and 4 heads"):
        layer(6, num_heads=4)
