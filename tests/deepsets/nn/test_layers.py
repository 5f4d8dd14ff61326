"""Equivariant layers against dense formulas, one set at a time; and the memory they take."""

import gc
import weakref

import pytest
import torch
from hypothesis import given, settings
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from deepsets import Sets, nn
from deepsets.testing import assert_equivariant
from tests.strategies import assert_near, ragged_batches

WIDTH = 4
POOLS = ["sum", "mean", "sqrt", "std", "max", "min", "logsumexp", "gated", "sorted"]
LAYERS = {
    "full": lambda: nn.Equivariant(WIDTH, 5),
    "factored": lambda: nn.Equivariant(WIDTH, 5, pool="mean", form="factored"),
    "channel": lambda: nn.Equivariant(WIDTH, WIDTH, pool="sum", form="channel"),
    "wide": lambda: nn.Equivariant(WIDTH, 5, pool=["max", nn.QuantilePooling(), "seeds"]),
    "norm": lambda: nn.SetNorm(WIDTH),
    "standardize": lambda: nn.Standardize(),
    "dropout": lambda: nn.SetDropout(0.5),
    "block": lambda: nn.EquivariantBlock(WIDTH),
    "attention": lambda: nn.SetAttention(WIDTH, num_heads=2),
    "induced": lambda: nn.InducedSetAttention(WIDTH, num_inducing_points=3, num_heads=2),
    "stack": lambda: nn.SetSequential(
        nn.Equivariant(WIDTH, 8), torch.nn.Tanh(), nn.EquivariantBlock(8), torch.nn.Linear(8, 2)
    ),
}
every_layer = pytest.mark.parametrize("name", LAYERS)


def shaken(layer: torch.nn.Module, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    """The layer in eval mode with random weights, as after training: nothing is 0 or 1 by initialisation."""
    torch.manual_seed(0)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return layer.eval().to(dtype)


def unweighted(sets: Sets) -> Sets:
    return Sets(sets.values, sets.offsets, sets.element_ids)


# ----------------------------------------------------------------------------------------------- equivariant


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("form", ["full", "factored", "channel"])
@given(sets=ragged_batches(WIDTH, dtypes=[torch.float64]))
@settings(max_examples=8)
def test_every_form_equals_its_formula_on_each_set(form, pool, sets):
    if pool == "sorted":
        sets = unweighted(sets)
    layer = shaken(nn.Equivariant(WIDTH, WIDTH if form == "channel" else 5, pool=pool, form=form))
    pooled = layer.pool(sets)
    out = layer(sets)
    assert torch.equal(out.offsets, sets.offsets)
    for b, (x, y) in enumerate(zip(sets, out, strict=True)):
        if form == "full":
            wanted = x @ layer.member.weight.T - pooled[b] @ layer.context.weight.T + layer.member.bias
        elif form == "factored":
            wanted = (x - pooled[b]) @ layer.member.weight.T + layer.member.bias
        else:
            wanted = layer.scale * x + layer.context_scale * pooled[b]
        assert_near(y, wanted, 10)


@given(ragged_batches(WIDTH, weights=False))
def test_the_channel_form_with_sum_is_the_matrix_of_lemma_3(sets):
    layer = shaken(nn.Equivariant(WIDTH, WIDTH, pool="sum", form="channel"), sets.dtype)
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
    within = shaken(nn.Equivariant(WIDTH, WIDTH, form=form, activation=activation))
    plain = shaken(nn.Equivariant(WIDTH, WIDTH, form=form))
    after = getattr(torch.nn.functional, activation)
    x = torch.randn(6, WIDTH, dtype=torch.float64, requires_grad=True)
    sets = Sets(x, torch.tensor([0, 4, 4, 6]))
    found, wanted = within(sets).values, after(plain(sets).values)
    assert_near(found, wanted)
    assert_near(*(torch.autograd.grad(y.square().sum(), x)[0] for y in (found, wanted)))


@given(ragged_batches(WIDTH))
def test_no_layer_writes_into_its_input(sets):
    before = sets.values.clone()
    for make_one in LAYERS.values():
        make_one().to(sets.dtype)(unweighted(sets))
    assert torch.equal(sets.values, before)


def test_a_new_channel_layer_is_the_identity():
    sets = Sets.from_list([torch.randn(3, WIDTH)])
    assert torch.equal(nn.Equivariant(WIDTH, WIDTH, form="channel")(sets).values, sets.values)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"activation": "gelu"}, r"unknown activation 'gelu'; known are tanh, relu, elu"),
        ({"form": "dense"}, r"unknown form 'dense'; known are full, factored, channel"),
        (
            {"form": "channel"},
            r"the channel form keeps the width, found in_features=3 and out_features=5; use form='full'",
        ),
        ({"form": "factored", "pool": ["max", "mean"]}, r"is subtracted from the members, .* width 3; this pooling gives 6"),
        ({"form": "channel", "pool": ["max", "mean"]}, r"is added to the members, .* width 3; this pooling gives 6"),
    ],
)
def test_forms_that_do_not_fit_are_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        nn.Equivariant(3, 5, **arguments)


def test_members_stored_once_are_mapped_once(monkeypatch):
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


# ------------------------------------------------------------------------------------------- norms and dropout


@given(ragged_batches(WIDTH))
def test_set_norm_equals_the_formula_on_each_set(sets):
    layer = shaken(nn.SetNorm(WIDTH), sets.dtype)
    for x, y in zip(sets, layer(sets), strict=True):
        if len(x):
            plain = (x - x.mean()) / (x.var(correction=0) + layer.eps).sqrt()
            assert_near(y, plain * layer.weight + layer.bias, 50)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_set_norm_of_sets_of_one_size_equals_that_of_any_size(dtype):
    torch.manual_seed(0)
    layer, x = shaken(nn.SetNorm(WIDTH), dtype), torch.randn(4, 9, WIDTH, dtype=dtype)
    found = []
    for extra in (0, 1):  # one member more in the last set takes the general way
        values = torch.cat([x.flatten(0, 1), x[-1, :extra]]).requires_grad_()
        offsets = torch.tensor([0, 9, 18, 27, 36 + extra])
        y = layer(Sets(values, offsets)).values[:27]
        (grad,) = torch.autograd.grad((y * torch.linspace(-1, 1, y.numel(), dtype=dtype).view_as(y)).sum(), values)
        found.append((y, grad[:27]))
    for fast, slow in zip(*found, strict=True):
        assert_near(fast, slow, 20)


def test_set_norm_keeps_halves_under_autocast():
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


def test_other_sets_drop_other_channels():
    torch.manual_seed(0)
    out = nn.SetDropout(0.5)(Sets.from_list([torch.ones(2, 30)] * 2))
    assert not torch.equal(out[0], out[1])


@given(ragged_batches(WIDTH))
def test_dropout_is_the_identity_in_eval_mode_and_with_p_0(sets):
    assert nn.SetDropout(0.9).eval()(sets) is sets
    assert nn.SetDropout(0.0)(sets) is sets


@pytest.mark.parametrize("p", [1.0, -0.1])
def test_a_probability_outside_of_0_to_1_is_refused(p):
    with pytest.raises(ValueError, match=rf"the dropout probability must be in \[0, 1\), found {p}"):
        nn.SetDropout(p)


# ----------------------------------------------------------------------------------------------------- blocks


@given(ragged_batches(WIDTH))
def test_a_new_block_is_the_identity(sets):
    out = nn.EquivariantBlock(WIDTH).to(sets.dtype)(sets)
    assert torch.equal(out.values, sets.materialize().values)


def test_a_new_block_learns_although_it_is_the_identity():
    block = nn.EquivariantBlock(WIDTH)
    block(Sets.from_list([torch.randn(3, WIDTH)])).values.square().sum().backward()
    assert float(block.out.weight.grad.abs().max()) > 0


# -------------------------------------------------------------------------------------------------- attention


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
    layer = shaken(nn.SetAttention(WIDTH, num_heads=2), sets.dtype)
    for x, y in zip(sets, layer(sets), strict=True):
        if len(x):
            h = x + layer.out(dense_attention(layer, layer.norm(x), layer.norm(x)))
            assert_near(y, h + layer.feedforward(h), 50)


@given(ragged_batches(WIDTH))
def test_induced_attention_equals_dense_attention_on_each_set(sets):
    layer = shaken(nn.InducedSetAttention(WIDTH, num_inducing_points=3, num_heads=2), sets.dtype)
    sets = unweighted(sets)
    for x, y in zip(sets, layer(sets), strict=True):
        if len(x):
            summary = layer.summary(Sets.from_list([x])).reshape(3, WIDTH)
            h = x + layer.out(dense_attention(layer, layer.norm(x), summary))
            assert_near(y, h + layer.feedforward(h), 50)


@pytest.mark.parametrize("layer", [nn.SetAttention, nn.InducedSetAttention])
def test_heads_share_the_features_evenly(layer):
    with pytest.raises(ValueError, match=r"num_heads must divide features, found 6 features and 4 heads"):
        layer(6, num_heads=4)


# ------------------------------------------------------------------------------------------------ every layer


@every_layer
@given(sets=ragged_batches(WIDTH))
@settings(max_examples=10)
def test_every_layer_is_equivariant(name, sets):
    if name == "wide":
        sets = unweighted(sets)
    assert_equivariant(
        shaken(LAYERS[name](), sets.dtype), sets, trials=1, tolerance=1e-3 if sets.dtype == torch.float32 else 1e-9
    )


@every_layer
def test_every_layer_takes_empty_sets_and_empty_batches(name):
    layer = shaken(LAYERS[name]())
    x = torch.randn(3, WIDTH, dtype=torch.float64, requires_grad=True)
    out = layer(Sets(x, torch.tensor([0, 0, 2, 2, 3, 3])))
    assert out.sizes.tolist() == [0, 2, 0, 1, 0]
    out.values.square().sum().backward()
    assert bool(x.grad.isfinite().all())
    none = x.detach()[:0]
    assert layer(Sets(none, torch.tensor([0, 0, 0]))).values.shape == (0, out.width)
    assert len(layer(Sets(none, torch.tensor([0])))) == 0


@every_layer
def test_gradients_of_every_layer_are_those_of_finite_differences(name):
    layer = shaken(LAYERS[name]())
    torch.manual_seed(2)
    x = torch.randn(6, WIDTH, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer(Sets(x, torch.tensor([0, 3, 3, 4, 6]))).values, x)


def test_a_stack_takes_set_layers_and_plain_modules():
    first, last = nn.Equivariant(WIDTH, 8), torch.nn.Linear(8, 2)
    sets = Sets.from_list([torch.randn(3, WIDTH), torch.randn(2, WIDTH)])
    wanted = last(first(sets).values.relu())
    assert torch.equal(nn.SetSequential(first, torch.nn.ReLU(), last)(sets).values, wanted)


# ----------------------------------------------------------------------------------------------------- memory


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation gives back."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        self.numel = max([self.numel, *(t.numel() for t in tree_leaves(out) if isinstance(t, torch.Tensor))])
        return out


def largest(module: torch.nn.Module, sizes: list[int]) -> int:
    sets = Sets.from_list([torch.randn(n, WIDTH) for n in sizes])
    with Largest() as seen:
        module(sets)
    return seen.numel


MODULES = {
    **LAYERS,
    **{f"pool {p}": (lambda p=p: nn.pooling(p, WIDTH)) for p in [*POOLS, "seeds"]},
    "pool quantile": lambda: nn.QuantilePooling(),
    "deepset": lambda: nn.DeepSet(nn.mlp(WIDTH, 8, 8), nn.mlp(8, 1)),
}


@pytest.mark.parametrize("name", MODULES)
def test_memory_follows_the_number_of_elements_and_not_the_largest_set(name):
    module = MODULES[name]()
    even, skewed = largest(module, [10] * 440), largest(module, [4000] + [1] * 400)
    assert skewed <= 2 * even
    assert skewed <= 4400 * 64  # 64 numbers an element; padding would take 401 · 4000 rows, 364 times as many
