"""The invariant model against a plain loop; conditioning, states, and the same numbers in any batch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepsets import Sets, nn
from deepsets.testing import assert_invariant
from tests.deepsets.nn.oracles import oracle
from tests.strategies import DTYPES, assert_near, keep, pairs, ragged_batches

WIDTH, LATENT, Z = 3, 4, 2
POOLS = ["sum", "mean", "sqrt", "std", "max", "logsumexp", ("max", "mean")]


class Opaque(torch.nn.Module):
    """The same phi behind a wall: the model cannot see that it ends in a linear map."""

    def __init__(self, phi: torch.nn.Module) -> None:
        super().__init__()
        self.phi = phi

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.phi(x)


def make(pool="sum", condition=None, size=False, dtype=torch.float64) -> nn.DeepSet:
    torch.manual_seed(0)
    pooling = nn.pooling(pool, LATENT)
    phi = nn.mlp(WIDTH + Z * (condition in ("phi", "both")), 8, LATENT, activation=torch.nn.Tanh)
    rho = nn.mlp(
        pooling.out_features(LATENT) + size + Z * (condition in ("rho", "both")), 8, 2, activation=torch.nn.Tanh
    )
    return nn.DeepSet(phi, rho, pooling, condition=condition, append_size=size).to(dtype)


def loop(model: nn.DeepSet, pool: str | tuple[str, ...], sets: Sets, z: torch.Tensor | None) -> torch.Tensor:
    """Compute ρ(pool φ(x|z), log(1 + n), z), one member after another."""
    outputs = []
    for b, (x, w) in enumerate(pairs(sets)):
        inner = [torch.cat([m, z[b]]) if model.condition in ("phi", "both") else m for m in x]
        latent = torch.stack([model.phi(m) for m in inner]) if inner else x.new_zeros(0, LATENT)
        parts = [oracle(name, None, latent, w) for name in ([pool] if isinstance(pool, str) else pool)]
        if model.append_size:
            parts.append(torch.log1p(w.sum())[None])
        if model.condition in ("rho", "both"):
            parts.append(z[b])
        outputs.append(model.rho(torch.cat(parts)))
    return torch.stack(outputs)


def context(sets: Sets, condition: str | None) -> torch.Tensor | None:
    generator = torch.Generator().manual_seed(len(sets))
    return None if condition is None else torch.randn(len(sets), Z, generator=generator, dtype=sets.dtype)


@pytest.mark.parametrize("pool", POOLS, ids=str)
@pytest.mark.parametrize("size", [False, True])
@pytest.mark.parametrize("condition", [None, "phi", "rho", "both"])
@given(sets=ragged_batches(WIDTH, dtypes=[torch.float64]))
@settings(max_examples=5)
def test_the_model_equals_the_plain_loop(condition, size, pool, sets):
    model, z = make(pool, condition, size), context(sets, condition)
    assert_near(model(sets, z), loop(model, pool, sets, z), 1e4 if pool == "std" else 10)


@given(ragged_batches(WIDTH, dtypes=[torch.float32]))
def test_the_model_in_single_precision_is_near_the_loop_in_double(sets):
    found = make(dtype=torch.float32)(sets)
    assert found.dtype == torch.float32
    assert_near(found, loop(make(), "sum", sets.double(), None), 10)


@pytest.mark.parametrize("count", [0, 2])
def test_batches_without_elements_have_outputs(count):
    sets = Sets(torch.zeros(0, WIDTH, dtype=torch.float64), torch.zeros(count + 1, dtype=torch.long))
    assert make()(sets).shape == (count, 2)


# --------------------------------------------------------------------------------------------- the late linear map


@pytest.mark.parametrize("pool", ["sum", "mean", "sqrt"])
@pytest.mark.parametrize("condition", [None, "both"])
@given(sets=ragged_batches(WIDTH, dtypes=[torch.float64]))
@settings(max_examples=10)
def test_the_last_map_of_phi_may_run_after_the_pooling(condition, pool, sets):
    late, plain = make(pool, condition, size=True), make(pool, condition, size=True)
    plain.phi = Opaque(plain.phi)
    z = context(sets, condition)
    outputs = late(sets, z), plain(sets, z)
    assert_near(*outputs, 10)
    for output in outputs:
        output.square().sum().backward()
    for a, b in zip(late.parameters(), plain.parameters(), strict=True):
        assert_near(a.grad, b.grad, 100)


@pytest.mark.parametrize("pool", ["sum", "mean", "sqrt"])
def test_the_last_map_of_phi_sees_one_row_per_set_not_one_per_member(pool):
    model = make(pool)
    calls = []
    model.phi[-1].forward = lambda x: calls.append(len(x))
    model(Sets.from_list([torch.randn(50, WIDTH).double()] * 3))
    assert not calls  # its weight is used, on the 3 pooled rows


def test_a_hook_on_the_last_map_of_phi_sees_every_member():
    model, rows = make(), []
    model.phi[-1].register_forward_hook(lambda _module, inputs, _out: rows.append(len(inputs[0])))
    model(Sets.from_list([torch.randn(5, WIDTH).double()] * 3))
    assert rows == [15]


def test_a_phi_that_is_one_linear_map_or_ends_without_a_bias_runs_late_too():
    sets = Sets.from_list([torch.randn(n, WIDTH).double() for n in (3, 0, 1)])
    for phi in (
        torch.nn.Sequential(torch.nn.Linear(WIDTH, LATENT)),
        torch.nn.Sequential(torch.nn.Linear(WIDTH, LATENT, bias=False)),
    ):
        late = nn.DeepSet(phi, torch.nn.Identity()).double()
        assert_near(late(sets), nn.DeepSet(Opaque(phi), torch.nn.Identity())(sets))


# ------------------------------------------------------------------------------------------------- shared elements


def counted(model: nn.DeepSet) -> list[int]:
    rows: list[int] = []
    model.phi[0].register_forward_hook(lambda _module, inputs, _out: rows.append(len(inputs[0])))
    return rows


@given(ragged_batches(WIDTH, index=True, dtypes=[torch.float64]))
def test_phi_sees_distinct_elements_only(sets):
    model = make("max")
    rows = counted(model)
    with_index, without = model(sets), model(sets.materialize())
    assert_near(with_index, without, 10)
    assert rows[1] == sets.total
    if len(sets.values) <= sets.total:
        assert rows[0] == len(sets.values)
    else:
        assert rows[0] == len(sets.element_ids.unique())


def test_phi_sees_every_member_when_z_goes_into_it():
    model = make(condition="phi")
    rows = counted(model)
    sets = Sets(torch.randn(2, WIDTH).double(), torch.tensor([0, 3, 5]), torch.tensor([0, 1, 0, 1, 1]))
    model(sets, torch.randn(2, Z).double())
    assert rows == [5]


def test_a_few_sets_do_not_send_all_stored_elements_through_phi():
    model = make()
    rows = counted(model)
    store = Sets(torch.randn(100, WIDTH).double(), torch.arange(0, 101, 2), torch.arange(100))
    model(store[[7, 7, 3]])
    assert rows == [4]


# ---------------------------------------------------------------------------------------------------------- states


@pytest.mark.parametrize("pool", [*POOLS, "gated", "seeds"], ids=str)
@pytest.mark.parametrize("size", [False, True])
@pytest.mark.parametrize("condition", [None, "rho"])
@given(sets=ragged_batches(WIDTH, dtypes=[torch.float64]), data=st.data())
@settings(max_examples=4)
def test_states_decode_to_the_output_and_merge_to_the_union(condition, size, pool, sets, data):
    model, z = make(pool, condition, size), context(sets, condition)
    expected, factor = model(sets, z), 1e6 if pool == "std" else 10
    assert_near(model.decode(model.encode(sets), z), expected, factor)
    mask = data.draw(st.lists(st.booleans(), min_size=sets.total, max_size=sets.total))
    mask = torch.tensor(mask, dtype=torch.bool)
    merged = model.encode(keep(sets, mask)) + model.encode(keep(sets, ~mask))
    assert_near(model.decode(merged, z), expected, factor)
    assert_near(model.decode(model.state(dict(merged.parts)), z), expected, factor)


@pytest.mark.parametrize("pool", ["sum", "mean", "sqrt", "std"])
def test_elements_can_be_removed_from_a_stored_state(pool):
    model = make(pool, size=True)
    a, b = torch.randn(5, WIDTH).double(), torch.randn(3, WIDTH).double()
    both, second, first = (Sets.from_list([x]) for x in (torch.cat([a, b]), b, a))
    assert_near(model.decode(model.encode(both) - model.encode(second)), model(first), 100)


def test_states_encoded_with_z_in_phi_decode_without_it():
    model = make(condition="phi")
    sets = Sets.from_list([torch.randn(3, WIDTH).double()])
    z = torch.randn(1, Z).double()
    assert_near(model.decode(model.encode(sets, z)), model(sets, z))


def test_states_are_encoded_without_the_z_of_rho():
    model = make(condition="rho")
    sets = Sets.from_list([torch.randn(3, WIDTH).double()])
    z = torch.randn(1, Z).double()
    assert_near(model.decode(model.encode(sets), z), model(sets, z))


def test_states_of_set_layers_are_refused():
    model = nn.DeepSet(nn.SetSequential(nn.Equivariant(WIDTH, LATENT)), nn.mlp(LATENT, 1))
    with pytest.raises(ValueError, match=r"states need a phi that sees one element at a time; this phi is a set layer"):
        model.encode(Sets.from_list([torch.zeros(2, WIDTH)]))


def test_a_state_without_the_size_is_refused_by_a_model_that_uses_it():
    model = make("mean", size=True)
    parts = make("mean").encode(Sets.from_list([torch.zeros(2, WIDTH).double()])).parts
    with pytest.raises(ValueError, match=r"a state needs the part 'elements'; found sum, count. Make states with"):
        model.decode(nn.State(model.pool, parts))


@pytest.mark.parametrize(
    "pool", [*POOLS, nn.GatedAttentionPooling(LATENT), nn.SeedAttentionPooling(LATENT, 2, 2)], ids=str
)
@pytest.mark.parametrize("opaque", [False, True])
def test_states_in_double_precision_of_a_model_in_single_precision(pool, opaque):
    torch.manual_seed(0)
    phi = nn.mlp(WIDTH, 8, LATENT)
    pooling = nn.pooling(pool, LATENT)
    rho = nn.mlp(pooling.out_features(LATENT) + 1, 8, 2)
    model = nn.DeepSet(Opaque(phi) if opaque else phi, rho, pooling, append_size=True)
    seen = []
    phi[0].register_forward_hook(lambda _module, inputs, _out: seen.append(inputs[0].dtype))
    sets = Sets.from_list([torch.randn(n, WIDTH) for n in (5, 0, 300)], weights=[torch.rand(n) for n in (5, 0, 300)])
    state = model.encode(sets, dtype=torch.float64)
    assert seen == [torch.float32]
    assert {part.dtype for part in state.parts.values() if part.is_floating_point()} == {torch.float64}
    output = model.decode(state + model.encode(sets[[1, 1, 1]], dtype=torch.float64))
    assert output.dtype == torch.float32
    assert_near(output, model(sets), 10)


def test_states_in_double_precision_add_up_without_loss():
    model = nn.DeepSet(torch.nn.Identity(), torch.nn.Identity())
    large, small = (Sets.from_list([torch.tensor([[x]])]) for x in (2.0**25, 1.0))
    exact = model.encode(large, dtype=torch.float64) + model.encode(small, dtype=torch.float64)
    assert exact.parts["sum"].item() == 2.0**25 + 1
    assert (model.encode(large) + model.encode(small)).parts["sum"].item() == 2.0**25


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda parts: parts.pop("sum"), r"has the parts sum, count, elements; found count, elements"),
        (lambda parts: parts.update(best=parts["sum"]), r"has the parts sum, count, elements; found .*best"),
        (lambda parts: parts.update(count=torch.zeros(3)), r"all parts of a state need one row per set; found .*3"),
        (lambda parts: parts.update(count=torch.zeros(())), r"all parts of a state need one row per set; found .*None"),
    ],
)
def test_parts_of_another_model_make_no_state(change, message):
    model = make("mean", size=True)
    parts = dict(model.encode(Sets.from_list([torch.zeros(2, WIDTH).double()])).parts)
    change(parts)
    with pytest.raises(ValueError, match=message):
        model.state(parts)


@pytest.mark.parametrize(
    ("pool", "expected"),
    [("sum", True), (["max", "std"], True), (nn.QuantilePooling(), False), (["max", nn.QuantilePooling()], False)],
    ids=str,
)
def test_a_model_knows_whether_its_states_merge(pool, expected):
    assert nn.DeepSet(torch.nn.Identity(), torch.nn.Identity(), pool).mergeable is expected
    assert not nn.DeepSet(nn.SetSequential(), torch.nn.Identity(), pool).mergeable


# ---------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("condition", "z", "message"),
    [
        (None, torch.zeros(1, Z), r"this model takes no z \(condition=None\); z was given"),
        ("phi", None, r"this model takes z, which goes into phi \(condition='phi'\); z was not given"),
        ("rho", None, r"this model takes z, which goes into rho \(condition='rho'\); z was not given"),
        ("both", None, r"this model takes z, which goes into both \(condition='both'\); z was not given"),
        ("rho", torch.zeros(3, Z), r"one row for each of the 1 sets, shape \(1, z\); found shape \(3, 2\)"),
        ("phi", torch.zeros(Z), r"one row for each of the 1 sets, shape \(1, z\); found shape \(2,\)"),
    ],
)
def test_a_z_that_does_not_fit_is_refused(condition, z, message):
    model = make(condition=condition)
    sets = Sets.from_list([torch.zeros(2, WIDTH).double()])
    for use in (model,) if condition == "rho" and z is None else (model, model.encode):
        with pytest.raises(ValueError, match=message):
            use(sets, z)


def test_decoding_needs_the_z_of_rho():
    sets = Sets.from_list([torch.zeros(2, WIDTH).double()])
    model = make(condition="rho")
    state = model.encode(sets, torch.zeros(1, Z))
    with pytest.raises(ValueError, match=r"this model conditions rho on z: decode needs z"):
        model.decode(state)
    with pytest.raises(ValueError, match=r"one row for each of the 1 sets, shape \(1, z\); found shape \(2, 2\)"):
        model.decode(state, torch.zeros(2, Z))
    with pytest.raises(ValueError, match=r"this model takes no z \(condition=None\); z was given"):
        make().decode(make().encode(sets), torch.zeros(1, Z))


def test_an_unknown_condition_is_refused():
    with pytest.raises(ValueError, match=r"condition must be 'phi', 'rho', 'both' or None, found 'pool'"):
        make(condition="pool")


# ---------------------------------------------------------------------------------------- order, neighbours, files


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pool", ["sum", "mean", "max", ("max", "std")], ids=str)
@given(data=st.data())
@settings(max_examples=8)
def test_the_model_does_not_depend_on_order_or_on_other_sets(pool, dtype, data):
    sets = data.draw(ragged_batches(WIDTH, dtypes=[dtype]))
    assert_invariant(
        make(pool, size=True, dtype=dtype), sets, trials=1, tolerance=1e-3 if dtype == torch.float32 else 1e-6
    )


@given(ragged_batches(WIDTH))
@settings(max_examples=8)
def test_set_layers_as_phi_give_an_invariant_model(sets):
    torch.manual_seed(0)
    model = nn.DeepSet(
        nn.SetSequential(nn.Equivariant(WIDTH, 8), torch.nn.Tanh(), nn.EquivariantBlock(8)), nn.mlp(8, 2), "mean"
    )
    assert_invariant(model.to(sets.dtype), sets, trials=1)


@given(st.lists(st.lists(st.integers(0, 9), max_size=40), min_size=1, max_size=6), st.sampled_from(DTYPES))
def test_sets_of_embedded_tokens_are_summed_to_the_same_bits_alone_and_in_any_batch(lists, dtype):
    torch.manual_seed(0)
    model = nn.DeepSet(torch.nn.Embedding(10, 16), torch.nn.Identity()).to(dtype)
    sets = Sets.from_ids(lists, range(10))
    alone = torch.cat([model(sets[[b]]) for b in range(len(sets))])
    assert torch.equal(alone, model(sets))
    assert torch.equal(model(sets[::-1]), alone.flip(0))


def magnitude(phi: torch.nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """|φ|: the network with all weights and inputs made positive, which bounds every intermediate term."""
    x = x.abs()
    for layer in phi:
        x = x @ layer.weight.abs().T + layer.bias.abs() if isinstance(layer, torch.nn.Linear) else x
    return x


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("widths", [(3, 64, 64), (3, 128, 128, 32), (64, 16)])
def test_a_set_alone_and_in_a_batch_differ_by_rounding_only(widths, dtype):
    """Matrix products of other shapes may add in another order, so the bits may differ, but by no more than

        |Δ| ≤ c · eps · Σᵢ |φ|(xᵢ)   with   c = n + Σ over the linear maps of (inputs + 2).

    A dot product of k terms plus a bias, in any order, is off by at most (k + 1) eps/2 of the sum of its absolute
    terms; ReLU does not enlarge an error; n members add (n - 1) eps/2; a linear map that runs after the pooling one
    more. Two evaluations can differ by twice that.
    """
    torch.manual_seed(0)
    model = nn.DeepSet(nn.mlp(*widths), torch.nn.Identity()).to(dtype)
    sets = Sets.from_list([torch.randn(n, widths[0], dtype=dtype) for n in (1, 2, 3, 17, 100, 1000, 1, 40)])
    together = model(sets)
    for b, x in enumerate(sets):
        c = len(x) + sum(k + 2 for k in widths[:-1])
        bound = c * torch.finfo(dtype).eps * magnitude(model.phi, x).sum(0)
        assert bool(((model(sets[[b]])[0] - together[b]).abs() <= bound).all())


def test_weights_load_strictly_into_a_fresh_model():
    model, fresh = (
        nn.DeepSet(nn.mlp(WIDTH, 8, LATENT), nn.mlp(LATENT, 1), nn.GatedAttentionPooling(LATENT)) for _ in range(2)
    )
    sets = Sets.from_list([torch.randn(3, WIDTH)])
    assert not torch.equal(model(sets), fresh(sets))
    fresh.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(model(sets), fresh(sets))
    fewer = {name: part for name, part in model.state_dict().items() if name != "pool.score.weight"}
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "pool.score.weight"'):
        fresh.load_state_dict(fewer)
