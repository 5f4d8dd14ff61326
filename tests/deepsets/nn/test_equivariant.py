"""Equivariant layers and blocks against their formulas, one set at a time."""

import gc
import weakref

import pytest
import torch
from hypothesis import given, settings

from deepsets import Sets, nn
from tests.deepsets.nn.oracles import WIDTH, oracle, randomized, unweighted
from tests.strategies import assert_near, pairs, ragged_batches

POOLS = ["sum", "mean", "sqrt", "std", "max", "min", "logsumexp", "gated", "sorted"]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("form", ["full", "factored", "channel"])
@given(sets=ragged_batches(WIDTH, dtypes=[torch.float64]))
@settings(max_examples=8)
def test_every_form_equals_its_formula_on_each_set(form, pool, sets):
    if pool == "sorted":
        sets = unweighted(sets)
    layer = randomized(nn.Equivariant(WIDTH, WIDTH if form == "channel" else 5, pool=pool, form=form))
    pooled = [oracle(pool, layer.pool, x, w) for x, w in pairs(sets)]
    out = layer(sets)
    assert torch.equal(out.offsets, sets.offsets)
    for b, (x, y) in enumerate(zip(sets, out, strict=True)):
        if form == "full":
            expected = x @ layer.member.weight.T - pooled[b] @ layer.context.weight.T + layer.member.bias
        elif form == "factored":
            expected = (x - pooled[b]) @ layer.member.weight.T + layer.member.bias
        else:
            expected = layer.scale * x + layer.context_scale * pooled[b]
        assert_near(y, expected, 10)


@pytest.mark.parametrize(
    ("pool", "form", "expected"),
    [  # members 1, 4 and 5: the maximum is 5, the mean 10 / 3
        ("max", "full", [2 * 1 - 3 * 5 + 1, 2 * 4 - 3 * 5 + 1, 2 * 5 - 3 * 5 + 1]),
        ("mean", "full", [2 * 1 - 10 + 1, 2 * 4 - 10 + 1, 2 * 5 - 10 + 1]),
        ("max", "factored", [2 * (1 - 5) + 1, 2 * (4 - 5) + 1, 2 * (5 - 5) + 1]),
        ("sum", "channel", [2 * 1 + 3 * 10, 2 * 4 + 3 * 10, 2 * 5 + 3 * 10]),
    ],
)
@torch.no_grad()
def test_numbers_computed_by_hand(pool, form, expected):
    layer = nn.Equivariant(1, 1, pool=pool, form=form)
    if form == "channel":
        layer.scale.fill_(2), layer.context_scale.fill_(3)
    else:
        layer.member.weight.fill_(2), layer.member.bias.fill_(1)
        if form == "full":
            layer.context.weight.fill_(3)
    sets = Sets.from_list([[[1.0], [4.0], [5.0]], []])
    torch.testing.assert_close(layer(sets).values.flatten(), torch.tensor(expected, dtype=torch.float32))


@given(ragged_batches(WIDTH, weights=False))
def test_the_channel_form_with_sum_is_the_matrix_of_lemma_3(sets):
    layer = randomized(nn.Equivariant(WIDTH, WIDTH, pool="sum", form="channel"), sets.dtype)
    for x, y in zip(sets, layer(sets), strict=True):
        for c in range(WIDTH):
            m = len(x)
            theta = layer.scale[c] * torch.eye(m, dtype=x.dtype) + layer.context_scale[c] * torch.ones(
                m, m, dtype=x.dtype
            )
            assert_near(y[:, c], theta @ x[:, c], 10)


@pytest.mark.parametrize("form", ["full", "factored", "channel"])
@pytest.mark.parametrize("activation", ["tanh", "relu", "elu"])
def test_an_activation_within_the_layer_equals_the_activation_after_it(activation, form):
    within = randomized(nn.Equivariant(WIDTH, WIDTH, form=form, activation=activation))
    plain = randomized(nn.Equivariant(WIDTH, WIDTH, form=form))
    after = getattr(torch.nn.functional, activation)
    x = torch.randn(6, WIDTH, dtype=torch.float64, requires_grad=True)
    sets = Sets(x, torch.tensor([0, 4, 4, 6]))
    found, expected = within(sets).values, after(plain(sets).values)
    assert_near(found, expected)
    assert_near(*(torch.autograd.grad(y.square().sum(), x)[0] for y in (found, expected)))


def test_a_new_channel_layer_is_the_identity():
    sets = Sets.from_list([torch.randn(3, WIDTH)])
    assert torch.equal(nn.Equivariant(WIDTH, WIDTH, form="channel")(sets).values, sets.values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"activation": "gelu"}, r"unknown activation 'gelu'; known are tanh, relu, elu"),
        ({"form": "dense"}, r"unknown form 'dense'; known are full, factored, channel"),
        (
            {"form": "channel"},
            r"the channel form keeps the width, found in_features=3 and out_features=5; use form='full'",
        ),
        (
            {"form": "factored", "pool": ["max", "mean"]},
            r"is subtracted from the members, .* width 3; this pooling gives 6",
        ),
        ({"form": "channel", "pool": ["max", "mean"]}, r"is added to the members, .* width 3; this pooling gives 6"),
    ],
)
def test_invalid_forms_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        nn.Equivariant(3, 5, **arguments)


def test_shared_members_are_mapped_once(monkeypatch):
    rows = []
    layer = nn.Equivariant(WIDTH, 5)
    linear = torch.nn.functional.linear

    def counted(x, weight, bias=None):
        if weight is layer.member.weight:
            rows.append(len(x))
        return linear(x, weight, bias)

    monkeypatch.setattr(torch.nn.functional, "linear", counted)
    store = torch.randn(3, WIDTH)
    layer(Sets(store, torch.tensor([0, 4, 9]), torch.tensor([0, 1, 2, 0, 1, 1, 2, 0, 0])))
    layer(Sets(store, torch.tensor([0, 2]), torch.tensor([1, 1])))
    assert rows == [3, 1]


@pytest.mark.parametrize("size", [3, 3000])  # small sets are walked by rows, large ones set by set
@pytest.mark.parametrize("pool", ["max", "sum"])
def test_nothing_outlives_a_backward_pass(pool, size):
    net = nn.SetSequential(nn.Equivariant(WIDTH, 64, pool=pool, activation="tanh"), nn.Equivariant(64, 64, pool=pool))
    gc.disable()  # a reference cycle would wait for the collector, and training would grow by every batch until then
    try:
        first = net.layers[0](Sets.from_list([torch.randn(size, WIDTH) for _ in range(2)]))
        out = net.layers[1](first)
        refs = [weakref.ref(first.values), weakref.ref(out.values)]
        out.values.sum().backward()
        del first, out
        assert [ref() for ref in refs] == [None, None]
    finally:
        gc.enable()


@given(ragged_batches(WIDTH, weights=False, dtypes=[torch.float64]))
def test_a_block_equals_its_formula_on_each_set(sets):
    block = randomized(nn.EquivariantBlock(WIDTH))
    for x, y in zip(sets, block(sets), strict=True):
        if not len(x):
            continue
        h = (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt() * block.norm.weight + block.norm.bias
        pooled = torch.cat([h.amax(0), h.mean(0)])
        h = h @ block.mix.member.weight.T - pooled @ block.mix.context.weight.T + block.mix.member.bias
        h = h * (1 + torch.erf(h / 2**0.5)) / 2  # GELU
        assert_near(y, x + h @ block.out.weight.T + block.out.bias, 50)


@given(ragged_batches(WIDTH))
def test_a_new_block_is_the_identity(sets):
    out = nn.EquivariantBlock(WIDTH).to(sets.dtype)(sets)
    assert torch.equal(out.values, sets.materialize().values)


def test_a_new_block_learns_although_it_is_the_identity():
    block = nn.EquivariantBlock(WIDTH)
    block(Sets.from_list([torch.randn(3, WIDTH)])).values.square().sum().backward()
    assert float(block.out.weight.grad.abs().max()) > 0
