"""Every pooling against a loop over sets too simple to be wrong; its corners, gradients and states."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsets import Sets, nn
from deepsets.testing import assert_invariant
from tests.strategies import DTYPES, assert_near, keep, pairs, ragged_batches

WIDTH = 4
LINEAR = ["sum", "mean", "sqrt"]
PLAIN = [*LINEAR, "std", "max", "min", "logsumexp"]
LEARNED = ["gated", "seeds"]
SORTING = ["quantile", "sorted"]
MERGING = [*PLAIN, *LEARNED, "concat"]
ALL = [*MERGING, *SORTING]


def make(name: str, dtype: torch.dtype = torch.float64) -> nn.Pooling:
    """A pooling for members of WIDTH features, with weights that are not those of the start of training."""
    torch.manual_seed(0)
    if name == "quantile":
        return nn.QuantilePooling([0.0, 0.3, 1.0])
    if name == "seeds":
        return nn.SeedAttentionPooling(WIDTH, num_seeds=2, num_heads=2).to(dtype)
    if name == "concat":
        return nn.pooling(["max", "mean", "gated"], WIDTH).to(dtype)
    module = nn.pooling(name, WIDTH)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module.to(dtype)


# ------------------------------------------------------------------------------------------- the slow oracles


def oracle(name: str, module: nn.Pooling, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The answer for one set, (n, WIDTH) and its weights (n,), written as in the formula."""
    x, w = x[w > 0], w[w > 0]
    n = len(x)
    if name == "concat":
        return torch.cat([oracle(s, p, x, w) for s, p in zip(["max", "mean", "gated"], module.poolings, strict=True)])
    if name == "seeds":
        return seeds(module, x, w)
    if n == 0:
        return x.new_zeros(module.out_features(WIDTH))
    total = sum(w[i] * x[i] for i in range(n))
    mean = total / w.sum()
    if name == "sum":
        return total
    if name == "mean":
        return mean
    if name == "sqrt":
        return total / w.sum().sqrt()
    if name == "std":
        return (sum(w[i] * (x[i] - mean) ** 2 for i in range(n)) / w.sum()).sqrt()
    if name == "max":
        return x.amax(0)
    if name == "min":
        return x.amin(0)
    if name == "logsumexp":
        return sum(w[i] * x[i].exp() for i in range(n)).log()
    if name == "gated":
        score = (torch.tanh(module.content(x)) * torch.sigmoid(module.gate(x))) @ module.score.weight[0]
        return torch.softmax(score + w.log(), 0) @ x
    if name == "quantile":
        return torch.quantile(x, torch.tensor(module.q, dtype=x.dtype), dim=0).flatten()
    assert name == "sorted"
    ordered, knots = x.sort(0).values, module.weight
    answer = torch.zeros_like(x[0])
    for k in range(n):
        place = k / max(n - 1, 1) * (len(knots) - 1)
        low = min(math.floor(place), len(knots) - 2)
        answer = answer + ordered[k] * (knots[low] + (place - low) * (knots[low + 1] - knots[low])) / n
    return answer


def seeds(module: nn.SeedAttentionPooling, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    key, value = module.key_value(x).split(WIDTH, dim=-1)
    each = WIDTH // module.num_heads
    mixed = torch.zeros(module.num_seeds, WIDTH, dtype=x.dtype)
    for s in range(module.num_seeds):
        for h in range(module.num_heads):
            channels = slice(h * each, (h + 1) * each)
            if len(x):
                score = key[:, channels] @ module.query[s, channels] / each**0.5
                mixed[s, channels] = torch.softmax(score + w.log(), 0) @ value[:, channels]
    hidden = module.query + module.out(mixed)
    return (hidden + module.feedforward(module.norm(hidden))).flatten()


@pytest.mark.parametrize("name", MERGING)
@given(sets=ragged_batches(WIDTH))
def test_pooling_equals_the_plain_loop(name, sets):
    module = make(name, sets.dtype)
    precise = make(name)
    with torch.no_grad():
        slow = torch.stack([oracle(name, precise, x.double(), w.double()) for x, w in pairs(sets)])
        # The root in std turns a rounding error e of the variance of equal members into √e.
        found = module(sets)
        assert_near(found.square() if name == "std" else found, slow.square() if name == "std" else slow, 5)
    assert found.dtype == sets.dtype
    assert found.shape == (len(sets), module.out_features(WIDTH))


@pytest.mark.parametrize("name", SORTING)
@given(sets=ragged_batches(WIDTH, weights=False))
def test_sorting_poolings_equal_the_plain_loop(name, sets):
    module, precise = make(name, sets.dtype), make(name)
    with torch.no_grad():
        slow = torch.stack([oracle(name, precise, x.double(), w.double()) for x, w in pairs(sets)])
        assert_near(module(sets), slow, 5)


@pytest.mark.parametrize("name", ["max", "min"])
@given(sets=ragged_batches(WIDTH, weights=False))
def test_extremes_are_exact(name, sets):
    slow = torch.stack([getattr(x, f"a{name}")(0) if len(x) else torch.zeros(WIDTH, dtype=x.dtype) for x in sets])
    assert torch.equal(nn.pooling(name)(sets), slow)


# --------------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("name", MERGING)
@given(sets=ragged_batches(WIDTH, weights=True), data=st.data())
def test_a_weight_of_k_is_the_member_k_times_and_a_weight_of_0_is_absence(name, sets, data):
    times = torch.tensor(data.draw(st.lists(st.integers(0, 3), min_size=sets.total, max_size=sets.total)))
    times = times.long().reshape(-1)
    weighted = Sets(sets.values, sets.offsets, sets.element_ids, times.to(sets.dtype))
    repeated = Sets.from_list(
        [
            x.repeat_interleave(times[int(a) : int(b)], dim=0)
            for x, a, b in zip(sets, sets.offsets, sets.offsets[1:], strict=False)
        ]
    )
    module = make(name, sets.dtype)
    found, wanted = module(weighted), module(repeated)
    assert_near(found.square() if name == "std" else found, wanted.square() if name == "std" else wanted, 5)


@pytest.mark.parametrize("name", ["logsumexp", "gated", "seeds", "max", "min"])
def test_an_absent_member_far_above_the_others_changes_nothing(name):
    module = make(name)
    x = torch.randn(3, WIDTH, dtype=torch.float64)
    far = torch.cat([x, torch.full((1, WIDTH), 1e4, dtype=x.dtype), torch.full((1, WIDTH), -1e4, dtype=x.dtype)])
    far.requires_grad_()
    answer = module(Sets.from_list([far], weights=[[1, 1, 1, 0, 0]]))
    assert_near(answer, module(Sets.from_list([x])))
    answer.sum().backward()
    assert bool(far.grad.isfinite().all())
    assert bool((far.grad[3:] == 0).all())


@pytest.mark.parametrize("name", SORTING)
def test_sorting_poolings_refuse_weights(name):
    with pytest.raises(ValueError, match=r"(QuantilePooling|SortPooling) does not support weights: a sorted value has one place"):
        make(name)(Sets.from_list([torch.zeros(2, WIDTH).double()], weights=[[1, 2]]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_may_have_a_dtype_of_their_own(dtype):
    values = torch.randn(3, WIDTH, dtype=dtype)
    other = torch.float64 if dtype == torch.float32 else torch.float32
    sets = Sets(values, torch.tensor([0, 3]), weights=torch.tensor([1.0, 2.0, 0.5], dtype=other))
    for name in MERGING:
        module = make(name, dtype)
        assert module(sets).dtype == dtype
        assert_near(module(sets), module(sets.to(dtype=dtype)))


# --------------------------------------------------------------------------------- empty and single-member sets


def zero_of(name: str, module: nn.Pooling) -> torch.Tensor:
    none = torch.zeros(0, WIDTH, dtype=torch.float64)
    return oracle(name, module, none, none[:, 0])


@pytest.mark.parametrize("name", ALL)
def test_an_empty_set_has_a_defined_answer_and_finite_gradients(name):
    module = make(name)
    x = torch.randn(3, WIDTH, dtype=torch.float64, requires_grad=True)
    out = module(Sets(x, torch.tensor([0, 0, 2, 2, 3, 3])))
    for b in (0, 2, 4):
        assert_near(out[b].detach(), zero_of(name, module).detach())
    out.square().sum().backward()
    assert bool(x.grad.isfinite().all())
    assert all(bool(p.grad.isfinite().all()) for p in module.parameters())


@pytest.mark.parametrize("name", [name for name in ALL if name != "seeds"])
def test_the_answer_for_an_empty_set_is_0(name):
    assert bool((make(name)(Sets.from_list([torch.zeros(0, WIDTH).double()])) == 0).all())


@pytest.mark.parametrize("name", ["sum", "mean", "sqrt", "max", "min", "logsumexp", "gated"])
def test_a_single_member_is_its_own_answer(name):
    x = torch.randn(1, WIDTH, dtype=torch.float64)
    assert_near(make(name)(Sets.from_list([x])).detach(), x)


@pytest.mark.parametrize("members", [1, 4])
def test_members_that_are_all_alike_have_no_spread_and_finite_gradients(members):
    x = torch.full((members, WIDTH), 0.7, dtype=torch.float64, requires_grad=True)
    out = nn.StdPooling()(Sets.from_list([x]))
    assert float(out.detach().max()) < 1e-15
    out.sum().backward()
    assert bool(x.grad.isfinite().all())


@pytest.mark.parametrize("name", ALL)
def test_batches_without_elements_or_without_sets_have_answers(name):
    module = make(name)
    none = torch.zeros(0, WIDTH, dtype=torch.float64, requires_grad=True)
    out = module(Sets(none, torch.tensor([0, 0, 0])))
    assert_near(out.detach(), torch.stack([zero_of(name, module)] * 2).detach())
    out.sum().backward()
    assert none.grad.shape == (0, WIDTH)
    assert module(Sets(none, torch.tensor([0]))).shape == (0, module.out_features(WIDTH))


# -------------------------------------------------------------------------------------------------- symmetry


@pytest.mark.parametrize("name", MERGING)
@given(sets=ragged_batches(WIDTH))
def test_poolings_do_not_notice_order_or_neighbours(name, sets):
    assert_invariant(make(name, sets.dtype), sets, trials=1, tolerance=1e-4 if sets.dtype == torch.float32 else 1e-7)


@pytest.mark.parametrize("name", SORTING)
@given(sets=ragged_batches(WIDTH, weights=False))
def test_sorting_poolings_do_not_notice_order_or_neighbours(name, sets):
    assert_invariant(make(name, sets.dtype), sets, trials=1)


@pytest.mark.parametrize("name", ["sum", "max", "min", "quantile"])
@given(sets=ragged_batches(WIDTH), data=st.data())
def test_a_set_is_pooled_to_the_same_bits_alone_and_in_any_batch(name, sets, data):
    if name == "quantile":
        sets = Sets(sets.values, sets.offsets, sets.element_ids)
    module = make(name, sets.dtype)
    together = module(sets)
    order = data.draw(st.permutations(range(len(sets))))
    assert torch.equal(module(sets[order]), together[order])
    assert torch.equal(torch.cat([module(sets[[b]]) for b in range(len(sets))]), together)


# ------------------------------------------------------------------------------------------------- gradients


def batch(x: torch.Tensor, w: torch.Tensor | None = None, *, index: bool = False) -> Sets:
    """Sets of 3, 0, 1 and 2 members of six rows; with `index`, of four rows of which some stand in two sets."""
    which = torch.tensor([0, 1, 2, 2, 3, 0]) if index else None
    return Sets(x, torch.tensor([0, 3, 3, 4, 6]), which, w)


def spaced(rows: int) -> torch.Tensor:
    """Random rows without ties, so that extremes and sorted places do not change within gradcheck's step."""
    torch.manual_seed(1)
    return (torch.randperm(rows * WIDTH).double().reshape(rows, WIDTH) / 7).requires_grad_()


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_gradients_are_those_of_finite_differences(name, index):
    module = make(name)
    assert torch.autograd.gradcheck(lambda x: module(batch(x, index=index)), spaced(4 if index else 6))


@pytest.mark.parametrize("name", [*PLAIN, *LEARNED])
def test_gradients_of_members_with_weights_are_those_of_finite_differences(name):
    module = make(name)
    w = torch.tensor([1.0, 0.5, 0.0, 2.0, 0.3, 3.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: module(batch(x, w)), spaced(6))


@pytest.mark.parametrize("name", [*LINEAR, "std", "logsumexp", *LEARNED])
def test_weights_have_gradients_too(name):
    module = make(name)
    w = torch.tensor([1.0, 0.5, 0.7, 2.0, 0.3, 3.0], dtype=torch.float64, requires_grad=True)
    x = spaced(6).detach()
    # A member alone has spread 0 whatever its weight; the root of the rounding error is no function to differentiate.
    sets = (lambda w: batch(x, w)[[0, 1, 3]]) if name == "std" else (lambda w: batch(x, w))
    assert torch.autograd.gradcheck(lambda w: module(sets(w)), w)


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("name", ["sum", "mean", "std", "max", "min", "logsumexp"])
def test_second_gradients_are_those_of_finite_differences(name, index):
    module = make(name)
    assert torch.autograd.gradgradcheck(lambda x: module(batch(x, index=index)).pow(3), spaced(4 if index else 6))


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize(("name", "best"), [("max", 5.0), ("min", 1.0)])
def test_members_that_tie_share_the_gradient_equally(name, best, create_graph):
    other = 3.0
    x = torch.tensor([[best], [other], [best], [best], [other], [other]], requires_grad=True)
    pooled = nn.pooling(name)(Sets(x, torch.tensor([0, 4, 4, 6])))
    (gradient,) = torch.autograd.grad(
        (pooled * torch.tensor([[6.0], [1.0], [8.0]])).sum(), x, create_graph=create_graph
    )
    assert gradient.flatten().tolist() == [2.0, 0.0, 2.0, 2.0, 4.0, 4.0]


@given(ragged_batches(WIDTH, index=False, weights=False, dtypes=[torch.float64]))
def test_the_gradient_of_an_extreme_equals_that_of_torch(sets):
    for name in ("max", "min"):
        x = sets.values.clone().requires_grad_()
        scale = torch.arange(1.0, len(sets) + 1, dtype=torch.float64)[:, None]
        (found,) = torch.autograd.grad((nn.pooling(name)(sets.with_values(x)) * scale).sum(), x)
        slow = sum(
            (getattr(m, f"a{name}")(0) * s).sum() for m, s in zip(sets.with_values(x), scale, strict=True) if len(m)
        )
        (wanted,) = torch.autograd.grad(slow, x) if sets.total else (torch.zeros_like(x),)
        assert_near(found, wanted)


def test_an_extreme_over_more_members_than_one_block_has_the_gradient_of_torch():
    x = torch.randn(70_000, 8).round(decimals=2).requires_grad_()  # 2 MB: three blocks, with ties across them
    (found,) = torch.autograd.grad(nn.MaxPooling()(Sets(x, torch.tensor([0, 69_999, 70_000]))).sum(), x)
    (wanted,) = torch.autograd.grad(x[:69_999].amax(0).sum() + x[69_999:].sum(), x)
    assert_near(found, wanted)


# ---------------------------------------------------------------------------------------------------- states


@st.composite
def halves(draw):
    """A batch, and the same sets torn in two: batches of as many sets, the parts of one set in each."""
    whole = draw(ragged_batches(WIDTH)).materialize()
    mask = torch.tensor(draw(st.lists(st.booleans(), min_size=whole.total, max_size=whole.total)), dtype=torch.bool)
    return whole, keep(whole, mask), keep(whole, ~mask)


def states(module: nn.Pooling, *batches: Sets) -> list[nn.State]:
    return [nn.State(module, module.state(sets)) for sets in batches]


@pytest.mark.parametrize("name", MERGING)
@given(torn=halves())
def test_the_merged_state_of_two_parts_is_the_state_of_the_whole(name, torn):
    module = make(name, torn[0].dtype)
    whole, a, b = states(module, *torn)
    for merged in (a + b, b + a):
        found, wanted = merged.finish(), whole.finish()
        assert_near(found.square() if name == "std" else found, wanted.square() if name == "std" else wanted, 10)


@pytest.mark.parametrize("name", [*LINEAR, "std"])
@given(torn=halves())
def test_what_is_taken_away_leaves_the_rest(name, torn):
    if torn[0].weights is not None:  # multiplicities: fractions leave a count that is not exactly 0
        torn = [Sets(s.values, s.offsets, None, s.weights.ceil()) for s in torn]
    whole, a, b = states(make(name, torn[0].dtype), *torn)
    found, wanted = (whole - b).finish(), a.finish()
    factor = 10 * max(1.0, float(torn[0].values.abs().max() ** 2)) if torn[0].total else 1
    assert_near(found.square() if name == "std" else found, wanted.square() if name == "std" else wanted, factor)


@pytest.mark.parametrize("name", [*LINEAR, "std"])
def test_taking_away_all_members_leaves_an_empty_set_whatever_their_weights(name):
    module = make(name)
    x, w = torch.randn(3, WIDTH, dtype=torch.float64), torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    whole, one, rest = states(
        module,
        Sets.from_list([x], weights=[w]),
        Sets.from_list([x[2:]], weights=[w[2:]]),
        Sets.from_list([x[:2]], weights=[w[:2]]),
    )
    empty = whole - one - rest
    assert empty.parts["count"].tolist() == [0.0]
    assert_near(empty.finish(), torch.zeros(1, WIDTH))


@pytest.mark.parametrize("name", MERGING)
@given(sets=ragged_batches(WIDTH))
def test_an_empty_set_adds_nothing(name, sets):
    module = make(name, sets.dtype)
    nothing = keep(sets, torch.zeros(sets.total, dtype=torch.bool))
    whole, none = states(module, sets, nothing)
    assert torch.equal((whole + none).finish(), whole.finish())
    assert torch.equal((none + whole).finish(), whole.finish())


@pytest.mark.parametrize("name", ["max", "min", "logsumexp", "gated", "seeds", "concat"])
def test_poolings_that_forget_cannot_take_away(name):
    (state,) = states(make(name), Sets.from_list([torch.zeros(2, WIDTH).double()]))
    with pytest.raises(ValueError, match=r"cannot remove elements: .* sum, mean, sqrt and std can"):
        state - state


@pytest.mark.parametrize("name", SORTING)
def test_sorting_poolings_have_no_state(name):
    with pytest.raises(ValueError, match=r"(QuantilePooling|SortPooling) needs all members of a set at once: it has no state"):
        make(name).state(Sets.from_list([torch.zeros(2, WIDTH).double()]))


def test_states_of_other_shapes_do_not_merge():
    two, three = (states(nn.SumPooling(), Sets.from_list([torch.zeros(1, WIDTH)] * n))[0] for n in (2, 3))
    with pytest.raises(ValueError, match=r"do not fit: the shape of 'sum' is \(2, 4\) here and \(3, 4\) there"):
        two + three
    (other,) = states(nn.MaxPooling(), Sets.from_list([torch.zeros(1, WIDTH)] * 2))
    with pytest.raises(ValueError, match=r"do not fit: the shape of 'sum' is \(2, 4\) here and missing there"):
        two + other
    with pytest.raises(TypeError, match=r"only a State can be merged, found int: encode the sets first"):
        two + 1


def test_a_state_can_be_indexed_and_made_again_from_its_parts():
    (state,) = states(nn.MeanPooling(), Sets.from_list([torch.full((1, 2), float(b)) for b in range(3)]))
    assert len(state) == 3
    assert repr(state) == "State(3 sets: sum (3, 2), count (3,))"
    again = nn.State(nn.MeanPooling(), {name: part.clone() for name, part in state.parts.items()})
    assert again[[2, 0]].finish().tolist() == [[2, 2], [0, 0]]


# ----------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("median", r"unknown pooling 'median'; known are sum, mean, .*gated, seeds"),
        ([], r"an empty list names no pooling"),
        ("gated", r"'gated' has parameters .* give the module, for example GatedAttentionPooling\(64\)"),
    ],
)
def test_a_pooling_that_is_not_known_is_refused(spec, sentence):
    with pytest.raises(ValueError, match=sentence):
        nn.pooling(spec)


@pytest.mark.parametrize(
    ("make_one", "sentence"),
    [
        (lambda: nn.QuantilePooling([0.5, 1.5]), r"quantiles must be between 0 and 1, found \[0.5, 1.5\]"),
        (lambda: nn.QuantilePooling([]), r"quantiles must be between 0 and 1, found \[\]"),
        (lambda: nn.SortPooling(3, knots=1), r"needs at least 2 knots, found 1"),
        (lambda: nn.SeedAttentionPooling(6, num_heads=4), r"num_heads must divide features"),
    ],
)
def test_poolings_refuse_settings_without_meaning(make_one, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_one()


@pytest.mark.parametrize("name", [*PLAIN, "quantile"])
def test_ids_images_and_plain_numbers_are_not_rows_of_features(name):
    module = make(name)
    with pytest.raises(ValueError, match=r"poolings take floating-point features, found torch.int64: embed ids first"):
        module(Sets.from_list([torch.zeros(3, WIDTH, dtype=torch.long)]))
    with pytest.raises(ValueError, match=r"values \(N, D\); found values of shape \(3,\)"):
        module(Sets.from_list([torch.zeros(3)]))
    with pytest.raises(ValueError, match=r"values \(N, D\); found values of shape \(3, 2, 2\)"):
        module(Sets.from_list([torch.zeros(3, 2, 2)]))
