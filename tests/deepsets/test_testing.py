"""The shipped checks of symmetry: silent on good models, and a message with the reason for bad ones."""

import pytest
import torch
from hypothesis import given

from deepsets import Sets, nn
from deepsets.testing import assert_equivariant, assert_invariant
from tests.strategies import DTYPES, ragged_batches


@pytest.fixture(params=DTYPES)
def sets(request):
    torch.manual_seed(0)
    return Sets.from_list([torch.randn(n, 2, dtype=request.param) for n in (4, 0, 1, 6)])


@given(ragged_batches(2))
def test_a_good_model_passes(sets):
    assert assert_invariant(nn.pooling("sum"), sets, trials=1) is None
    assert assert_equivariant(nn.Standardize(), sets, trials=1, tolerance=1e-3) is None


def test_answers_of_any_shape_are_compared(sets):
    sizes = sets.sizes
    for output in (
        lambda s: s.sizes,
        lambda s: s.sizes.double(),
        lambda s: s.sizes[:, None, None].double().expand(-1, 2, 3),
        lambda s: torch.zeros(len(s), 0),
        lambda s: torch.where(s.sizes > 3, torch.inf, 1.0),
    ):
        assert len(output(sets)) == len(sizes)
        assert_invariant(output, sets)


def test_a_batch_without_sets_passes():
    none = Sets(torch.zeros(0, 2), torch.tensor([0]))
    assert assert_invariant(lambda s: s.sizes.double(), none) is None
    assert assert_equivariant(nn.SetNorm(2), none) is None


def test_the_same_seed_gives_the_same_message(sets):
    messages = set()
    for _ in range(2):
        with pytest.raises(AssertionError) as caught:
            assert_invariant(_first, sets, seed=5)
        messages.add(str(caught.value))
    assert len(messages) == 1


def _first(sets):
    """The first member of each set: depends on the order."""
    return torch.stack([x[0] if len(x) else sets.values.new_zeros(sets.width) for x in sets])


def _numbered(sets):
    """Adds the place of the set in the batch: depends on the order of the batch, not on that of the members."""
    return nn.pooling("sum")(sets) + torch.arange(len(sets))[:, None]


def _minus_batch_mean(sets):
    """Subtracts what the whole batch has in common: depends on the neighbours."""
    pooled = nn.pooling("sum")(sets)
    return pooled - pooled.mean(0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            _first,
            r"the output for set [03] \((4|6) members\) changes by [\d.]+ when its members are permuted; .* allowed",
        ),
        (_numbered, r"the output for set \d \(\d members\) changes by [123] when the sets of the batch are permuted; "),
        (
            _minus_batch_mean,
            r"the output for set \d \(\d members\) changes by [\d.]+ when it is alone in its batch; ",
        ),
        (lambda s: torch.zeros(3), r"expected one output for each of the 4 sets, found shape \(3,\)"),
        (lambda s: torch.tensor(0.0), r"expected one output for each of the 4 sets, found shape \(\)"),
        (lambda s: s.values, r"expected one output for each of the 4 sets, found shape \(11, 2\)"),
        (
            lambda s: torch.zeros(len(s), len(s)),
            r"the output has shape \(4, 1\) when it is alone in its batch, but \(4, 4\) before",
        ),
        (lambda s: s.sizes / 0 * 0, r"changes by inf when its members are permuted"),
    ],
    ids=["order", "place", "neighbours", "too-few", "one", "members", "wide", "nan"],
)
def test_a_model_that_is_not_invariant_fails_with_the_reason(sets, model, message):
    with pytest.raises(AssertionError, match=message):
        assert_invariant(model, sets)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            lambda s: s.with_values(s.values.cumsum(0)),
            r"the output for set [03] \([46] members\), member \d changes by [\d.]+ when its members are permuted",
        ),
        (
            lambda s: s.with_values(s.values + s.broadcast(torch.arange(len(s)))[:, None]),
            r"the output for set \d \(\d members\), member \d changes by \d when the sets of the batch are permuted",
        ),
        (
            lambda s: s.with_values(s.values - s.values.mean()),
            r"the output for set \d \(\d members\), member \d changes by [\d.]+ when it is alone in its batch",
        ),
        (lambda s: s[[0]], r"expected one output for each of the 11 members, found shape \(4, 2\)"),
    ],
    ids=["order", "place", "neighbours", "too-few"],
)
def test_a_model_that_is_not_equivariant_fails_with_the_reason(sets, model, message):
    with pytest.raises(AssertionError, match=message):
        assert_equivariant(model, sets)


def test_the_tolerance_decides(sets):
    def nearly(s):
        return _first(s) * 1e-3 + 1

    assert_invariant(nearly, sets, tolerance=0.1)
    with pytest.raises(AssertionError, match=r"0.0001\d* is allowed|1\.?\d*e-09 is allowed"):
        assert_invariant(nearly, sets)


def test_members_carry_their_weights_along():
    sets = Sets.from_list([[[1.0], [2.0], [4.0]]], weights=[[1.0, 2.0, 3.0]])
    assert assert_invariant(nn.pooling("mean"), sets) is None
    with pytest.raises(AssertionError, match=r"when its members are permuted"):
        assert_invariant(lambda s: (s.values[:, 0] * torch.tensor([1.0, 2.0, 3.0])).sum()[None], sets)
