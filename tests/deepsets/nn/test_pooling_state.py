"""States of poolings: merged, added to, removed from."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsets import Sets, nn
from tests.deepsets.nn.oracles import WIDTH
from tests.deepsets.nn.test_pooling import LINEAR, MERGING, SORTING, make_pooling
from tests.strategies import assert_near, keep, ragged_batches


@st.composite
def halves(draw):
    """A batch, and the same sets halves_of in two: batches of as many sets, the parts of one set in each."""
    whole = draw(ragged_batches(WIDTH)).materialize()
    mask = torch.tensor(draw(st.lists(st.booleans(), min_size=whole.total, max_size=whole.total)), dtype=torch.bool)
    return whole, keep(whole, mask), keep(whole, ~mask)


def states(module: nn.Pooling, *batches: Sets) -> list[nn.State]:
    return [nn.State(module, module.state(sets)) for sets in batches]


@pytest.mark.parametrize("name", MERGING)
@given(halves_of=halves())
def test_the_merged_state_of_two_parts_is_the_state_of_the_whole(name, halves_of):
    module = make_pooling(name, halves_of[0].dtype)
    whole, a, b = states(module, *halves_of)
    for merged in (a + b, b + a):
        found, expected = merged.finish(), whole.finish()
        assert_near(found.square() if name == "std" else found, expected.square() if name == "std" else expected, 10)


@pytest.mark.parametrize("name", [*LINEAR, "std"])
@given(halves_of=halves())
def test_removing_elements_leaves_the_rest(name, halves_of):
    if halves_of[0].weights is not None:  # multiplicities: fractions leave a count that is not exactly 0
        halves_of = [Sets(s.values, s.offsets, None, s.weights.ceil()) for s in halves_of]
    whole, a, b = states(make_pooling(name, halves_of[0].dtype), *halves_of)
    found, expected = (whole - b).finish(), a.finish()
    factor = 10 * max(1.0, float(halves_of[0].values.abs().max() ** 2)) if halves_of[0].total else 1
    assert_near(found.square() if name == "std" else found, expected.square() if name == "std" else expected, factor)


@pytest.mark.parametrize("name", [*LINEAR, "std"])
def test_removing_all_members_leaves_an_empty_set_whatever_their_weights(name):
    module = make_pooling(name)
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
    module = make_pooling(name, sets.dtype)
    nothing = keep(sets, torch.zeros(sets.total, dtype=torch.bool))
    whole, none = states(module, sets, nothing)
    assert torch.equal((whole + none).finish(), whole.finish())
    assert torch.equal((none + whole).finish(), whole.finish())


@pytest.mark.parametrize("name", ["max", "min", "logsumexp", "gated", "seeds", "concat"])
def test_poolings_that_are_not_invertible_cannot_remove_elements(name):
    (state,) = states(make_pooling(name), Sets.from_list([torch.zeros(2, WIDTH).double()]))
    with pytest.raises(ValueError, match=r"cannot remove elements: .* sum, mean, sqrt and std can"):
        state - state


@pytest.mark.parametrize("name", SORTING)
def test_sorting_poolings_have_no_state(name):
    with pytest.raises(
        ValueError, match=r"(QuantilePooling|SortPooling) needs all members of a set at once: it has no state"
    ):
        make_pooling(name).state(Sets.from_list([torch.zeros(2, WIDTH).double()]))


def test_states_of_different_shapes_do_not_merge():
    two, three = (states(nn.SumPooling(), Sets.from_list([torch.zeros(1, WIDTH)] * n))[0] for n in (2, 3))
    with pytest.raises(ValueError, match=r"do not fit: the shape of 'sum' is \(2, 4\) here and \(3, 4\) there"):
        two + three
    (other,) = states(nn.MaxPooling(), Sets.from_list([torch.zeros(1, WIDTH)] * 2))
    with pytest.raises(ValueError, match=r"do not fit: the shape of 'sum' is \(2, 4\) here and missing there"):
        two + other
    with pytest.raises(TypeError, match=r"only a State can be merged, found int: encode the sets first"):
        two + 1


def test_a_state_can_be_indexed_and_rebuilt_from_its_parts():
    (state,) = states(nn.MeanPooling(), Sets.from_list([torch.full((1, 2), float(b)) for b in range(3)]))
    assert len(state) == 3
    assert repr(state) == "State(3 sets: sum (3, 2), count (3,))"
    again = nn.State(nn.MeanPooling(), {name: part.clone() for name, part in state.parts.items()})
    assert again[[2, 0]].finish().tolist() == [[2, 2], [0, 0]]
