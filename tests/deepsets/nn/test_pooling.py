"""Every pooling against a loop over sets; weights, corner cases, symmetry and gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsets import Sets, nn
from deepsets.testing import assert_invariant
from tests.deepsets.nn.oracles import WIDTH, oracle
from tests.strategies import DTYPES, assert_near, pairs, ragged_batches

LINEAR = ["sum", "mean", "sqrt"]
PLAIN = [*LINEAR, "std", "max", "min", "logsumexp"]
LEARNED = ["gated", "seeds"]
SORTING = ["quantile", "sorted"]
MERGING = [*PLAIN, *LEARNED, "concat"]
ALL = [*MERGING, *SORTING]


def make_pooling(name: str, dtype: torch.dtype = torch.float64) -> nn.Pooling:
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


@pytest.mark.parametrize("name", MERGING)
@given(sets=ragged_batches(WIDTH))
def test_pooling_equals_the_plain_loop(name, sets):
    module = make_pooling(name, sets.dtype)
    precise = make_pooling(name)
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
    module, precise = make_pooling(name, sets.dtype), make_pooling(name)
    with torch.no_grad():
        slow = torch.stack([oracle(name, precise, x.double(), w.double()) for x, w in pairs(sets)])
        assert_near(module(sets), slow, 5)


@pytest.mark.parametrize("name", ["max", "min"])
@given(sets=ragged_batches(WIDTH, weights=False))
def test_extremes_are_exact(name, sets):
    slow = torch.stack([getattr(x, f"a{name}")(0) if len(x) else torch.zeros(WIDTH, dtype=x.dtype) for x in sets])
    assert torch.equal(nn.pooling(name)(sets), slow)


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
    module = make_pooling(name, sets.dtype)
    found, expected = module(weighted), module(repeated)
    assert_near(found.square() if name == "std" else found, expected.square() if name == "std" else expected, 5)


@pytest.mark.parametrize("name", ["logsumexp", "gated", "seeds", "max", "min"])
def test_an_absent_member_far_above_the_others_changes_nothing(name):
    module = make_pooling(name)
    x = torch.randn(3, WIDTH, dtype=torch.float64)
    far = torch.cat([x, torch.full((1, WIDTH), 1e4, dtype=x.dtype), torch.full((1, WIDTH), -1e4, dtype=x.dtype)])
    far.requires_grad_()
    output = module(Sets.from_list([far], weights=[[1, 1, 1, 0, 0]]))
    assert_near(output, module(Sets.from_list([x])))
    output.sum().backward()
    assert bool(far.grad.isfinite().all())
    assert bool((far.grad[3:] == 0).all())


@pytest.mark.parametrize("name", SORTING)
def test_sorting_poolings_refuse_weights(name):
    with pytest.raises(
        ValueError, match=r"(QuantilePooling|SortPooling) does not support weights: a sorted value has one place"
    ):
        make_pooling(name)(Sets.from_list([torch.zeros(2, WIDTH).double()], weights=[[1, 2]]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_may_have_a_dtype_of_their_own(dtype):
    values = torch.randn(3, WIDTH, dtype=dtype)
    other = torch.float64 if dtype == torch.float32 else torch.float32
    sets = Sets(values, torch.tensor([0, 3]), weights=torch.tensor([1.0, 2.0, 0.5], dtype=other))
    for name in MERGING:
        module = make_pooling(name, dtype)
        assert module(sets).dtype == dtype
        assert_near(module(sets), module(sets.to(dtype=dtype)))


def zero_of(name: str, module: nn.Pooling) -> torch.Tensor:
    none = torch.zeros(0, WIDTH, dtype=torch.float64)
    return oracle(name, module, none, none[:, 0])


@pytest.mark.parametrize("name", ALL)
def test_an_empty_set_has_a_defined_output_and_finite_gradients(name):
    module = make_pooling(name)
    x = torch.randn(3, WIDTH, dtype=torch.float64, requires_grad=True)
    out = module(Sets(x, torch.tensor([0, 0, 2, 2, 3, 3])))
    for b in (0, 2, 4):
        assert_near(out[b].detach(), zero_of(name, module).detach())
    out.square().sum().backward()
    assert bool(x.grad.isfinite().all())
    assert all(bool(p.grad.isfinite().all()) for p in module.parameters())


@pytest.mark.parametrize("name", [name for name in ALL if name != "seeds"])
def test_the_output_for_an_empty_set_is_0(name):
    assert bool((make_pooling(name)(Sets.from_list([torch.zeros(0, WIDTH).double()])) == 0).all())


@pytest.mark.parametrize("name", ["sum", "mean", "sqrt", "max", "min", "logsumexp", "gated"])
def test_a_single_member_is_its_own_pooled_vector(name):
    x = torch.randn(1, WIDTH, dtype=torch.float64)
    assert_near(make_pooling(name)(Sets.from_list([x])).detach(), x)


@pytest.mark.parametrize("members", [1, 4])
def test_equal_members_have_no_deviation_and_finite_gradients(members):
    x = torch.full((members, WIDTH), 0.7, dtype=torch.float64, requires_grad=True)
    out = nn.StdPooling()(Sets.from_list([x]))
    assert float(out.detach().max()) < 1e-15
    out.sum().backward()
    assert bool(x.grad.isfinite().all())


@pytest.mark.parametrize("name", ALL)
def test_batches_without_elements_or_without_sets_have_outputs(name):
    module = make_pooling(name)
    none = torch.zeros(0, WIDTH, dtype=torch.float64, requires_grad=True)
    out = module(Sets(none, torch.tensor([0, 0, 0])))
    assert_near(out.detach(), torch.stack([zero_of(name, module)] * 2).detach())
    out.sum().backward()
    assert none.grad.shape == (0, WIDTH)
    assert module(Sets(none, torch.tensor([0]))).shape == (0, module.out_features(WIDTH))


@pytest.mark.parametrize("name", MERGING)
@given(sets=ragged_batches(WIDTH))
def test_poolings_do_not_depend_on_order_or_on_other_sets(name, sets):
    assert_invariant(
        make_pooling(name, sets.dtype), sets, trials=1, tolerance=1e-4 if sets.dtype == torch.float32 else 1e-7
    )


@pytest.mark.parametrize("name", SORTING)
@given(sets=ragged_batches(WIDTH, weights=False))
def test_sorting_poolings_do_not_depend_on_order_or_on_other_sets(name, sets):
    assert_invariant(make_pooling(name, sets.dtype), sets, trials=1)


@pytest.mark.parametrize("name", ["sum", "max", "min", "quantile"])
@given(sets=ragged_batches(WIDTH), data=st.data())
def test_a_set_is_pooled_to_the_same_bits_alone_and_in_any_batch(name, sets, data):
    if name == "quantile":
        sets = Sets(sets.values, sets.offsets, sets.element_ids)
    module = make_pooling(name, sets.dtype)
    together = module(sets)
    order = data.draw(st.permutations(range(len(sets))))
    assert torch.equal(module(sets[order]), together[order])
    assert torch.equal(torch.cat([module(sets[[b]]) for b in range(len(sets))]), together)


def batch(x: torch.Tensor, w: torch.Tensor | None = None, *, index: bool = False) -> Sets:
    """Sets of 3, 0, 1 and 2 members of six rows; with `index`, of four rows of which some are in two sets."""
    which = torch.tensor([0, 1, 2, 2, 3, 0]) if index else None
    return Sets(x, torch.tensor([0, 3, 3, 4, 6]), which, w)


def spaced(rows: int) -> torch.Tensor:
    """Random rows without ties, so that extremes and sorted places do not change within gradcheck's step."""
    torch.manual_seed(1)
    return (torch.randperm(rows * WIDTH).double().reshape(rows, WIDTH) / 7).requires_grad_()


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_gradients_are_those_of_finite_differences(name, index):
    module = make_pooling(name)
    assert torch.autograd.gradcheck(lambda x: module(batch(x, index=index)), spaced(4 if index else 6))


@pytest.mark.parametrize("name", [*PLAIN, *LEARNED])
def test_gradients_of_members_with_weights_are_those_of_finite_differences(name):
    module = make_pooling(name)
    w = torch.tensor([1.0, 0.5, 0.0, 2.0, 0.3, 3.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: module(batch(x, w)), spaced(6))


@pytest.mark.parametrize("name", [*LINEAR, "std", "logsumexp", *LEARNED])
def test_weights_have_gradients_too(name):
    module = make_pooling(name)
    w = torch.tensor([1.0, 0.5, 0.7, 2.0, 0.3, 3.0], dtype=torch.float64, requires_grad=True)
    x = spaced(6).detach()
    # A member alone has spread 0 whatever its weight; the root of the rounding error is no function to differentiate.
    sets = (lambda w: batch(x, w)[[0, 1, 3]]) if name == "std" else (lambda w: batch(x, w))
    assert torch.autograd.gradcheck(lambda w: module(sets(w)), w)


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("name", ["sum", "mean", "std", "max", "min", "logsumexp"])
def test_second_gradients_are_those_of_finite_differences(name, index):
    module = make_pooling(name)
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
        (expected,) = torch.autograd.grad(slow, x) if sets.total else (torch.zeros_like(x),)
        assert_near(found, expected)


def test_an_extreme_over_more_members_than_one_block_has_the_gradient_of_torch():
    x = torch.randn(70_000, 8).round(decimals=2).requires_grad_()  # 2 MB: three blocks, with ties across them
    (found,) = torch.autograd.grad(nn.MaxPooling()(Sets(x, torch.tensor([0, 69_999, 70_000]))).sum(), x)
    (expected,) = torch.autograd.grad(x[:69_999].amax(0).sum() + x[69_999:].sum(), x)
    assert_near(found, expected)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("median", r"unknown pooling 'median'; known are sum, mean, .*gated, seeds"),
        ([], r"an empty list names no pooling"),
        ("gated", r"'gated' has parameters .* give the module, for example GatedAttentionPooling\(64\)"),
    ],
)
def test_unknown_poolings_are_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        nn.pooling(spec)


@pytest.mark.parametrize(
    ("make_one", "message"),
    [
        (lambda: nn.QuantilePooling([0.5, 1.5]), r"quantiles must be between 0 and 1, found \[0.5, 1.5\]"),
        (lambda: nn.QuantilePooling([]), r"quantiles must be between 0 and 1, found \[\]"),
        (lambda: nn.SortPooling(3, knots=1), r"needs at least 2 knots, found 1"),
        (lambda: nn.SeedAttentionPooling(6, num_heads=4), r"num_heads must divide features"),
    ],
)
def test_invalid_settings_of_poolings_are_refused(make_one, message):
    with pytest.raises(ValueError, match=message):
        make_one()


@pytest.mark.parametrize("name", [*PLAIN, "quantile"])
def test_ids_images_and_plain_numbers_are_not_feature_rows(name):
    module = make_pooling(name)
    with pytest.raises(ValueError, match=r"poolings take floating-point features, found torch.int64: embed ids first"):
        module(Sets.from_list([torch.zeros(3, WIDTH, dtype=torch.long)]))
    with pytest.raises(ValueError, match=r"values \(N, D\); found values of shape \(3,\)"):
        module(Sets.from_list([torch.zeros(3)]))
    with pytest.raises(ValueError, match=r"values \(N, D\); found values of shape \(3, 2, 2\)"):
        module(Sets.from_list([torch.zeros(3, 2, 2)]))


def test_small_and_large_batches_have_the_same_sums_and_second_derivatives():
    x = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    sets = Sets.unchecked(x, torch.tensor([0, 4, 4, 5, 9]))
    slow = torch.stack([part.sum(0) for part in x.split([4, 0, 1, 4])])
    torch.testing.assert_close(nn.SumPooling()(sets), slow, rtol=0, atol=1e-15)
    assert torch.autograd.gradgradcheck(lambda v: nn.SumPooling()(sets.with_values(v)).square(), x)
    many = torch.randn(3000, 4)
    offsets = torch.tensor([0, 1000, 3000])
    alone = nn.SumPooling()(Sets(many, offsets))
    repeated = nn.SumPooling()(
        Sets(many.repeat(4, 1), torch.cat([offsets[:-1] + 3000 * k for k in range(4)] + [torch.tensor([12000])]))
    )
    assert torch.equal(repeated, alone.repeat(4, 1))  # above and below the size from which compiled kernels run
