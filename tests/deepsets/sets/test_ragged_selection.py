"""Selecting, joining and subsampling sets."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import KFold, train_test_split
from sklearn.utils import resample

from deepsets import Sets
from tests.strategies import assert_same, pairs, ragged_batches


@pytest.fixture
def three():
    """Three sets of 2, 0 and 3 elements with two features each."""
    return Sets.from_list([torch.arange(4.0).reshape(2, 2), [], torch.arange(4.0, 10).reshape(3, 2)])


def test_an_integer_selects_the_elements_of_one_set(three):
    for key in (2, -1, np.int64(2), torch.tensor(2)):
        assert three[key].tolist() == [[4, 5], [6, 7], [8, 9]]
    assert three[1].shape == (0, 2)


@given(ragged_batches(), st.data())
def test_selecting_sets_equals_selecting_from_the_list(sets, data):
    which = data.draw(st.lists(st.integers(-len(sets), len(sets) - 1), max_size=10))
    weights = [w for _, w in pairs(sets)]
    for key in (which, np.array(which, dtype=int), torch.tensor(which, dtype=torch.long), (which, ...)):
        chosen = sets[key]
        assert len(chosen) == len(which)
        for (x, w), i in zip(pairs(chosen), which, strict=True):
            assert torch.equal(x, sets[i])
            assert torch.equal(w, weights[i])


@given(ragged_batches(), st.data())
def test_masks_and_slices_select_as_from_a_list(sets, data):
    mask = data.draw(st.lists(st.booleans(), min_size=len(sets), max_size=len(sets)))
    assert_same(sets[mask], sets[[b for b, m in enumerate(mask) if m]])
    assert_same(sets[np.array(mask)], sets[torch.tensor(mask)])
    cut = data.draw(st.slices(len(sets)))
    assert_same(sets[cut], sets[list(range(len(sets)))[cut]])


def test_reversed_and_read_only_arrays_select_sets(three):
    assert three[np.arange(3)[::-1]].sizes.tolist() == [3, 0, 2]
    key = np.array([2, 0])
    key.flags.writeable = False
    assert three[key].sizes.tolist() == [3, 2]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (3, r"set 3 was asked for, but the batch has 3 sets"),
        (-4, r"set -4 was asked for, but the batch has 3 sets"),
        ([0, 3], r"set 3 was asked for, but the batch has 3 sets"),
        ([True, False], r"the mask has shape \(2,\), but the batch has 3 sets"),
        ([0.0, 1.0], r"chosen by a vector of integers, found shape \(2,\) of torch.float64"),
        ([[0, 1]], r"chosen by a vector of integers, found shape \(1, 2\) of torch.int64"),
    ],
)
def test_sets_out_of_range_cannot_be_selected(three, key, message):
    with pytest.raises(IndexError, match=message):
        three[key]


def test_a_batch_has_one_axis(three):
    with pytest.raises(ValueError, match=r"takes one index, or `\[rows, ...\]`; found 2: \(0, 1\)"):
        three[0, 1]


@given(ragged_batches())
def test_iteration_gives_the_sets_one_after_another(sets):
    found = list(sets)
    assert len(found) == len(sets)
    assert all(torch.equal(x, sets[b]) for b, x in enumerate(found))


@given(ragged_batches(index=False, weights=False), st.data())
def test_joining_batches_joins_their_lists(sets, data):
    cut = data.draw(st.integers(0, len(sets)))
    assert_same(Sets.concat([sets[:cut], sets[cut:]]), sets)


@given(ragged_batches(index=True, weights=True), st.data())
def test_joined_batches_keep_sharing_their_elements(sets, data):
    cut = data.draw(st.integers(0, len(sets)))
    joined = Sets.concat([sets[:cut], sets[cut:]])
    assert joined.values is sets.values
    assert_same(joined, sets)


def test_batches_with_different_stored_elements_are_joined(three):
    shared = Sets(torch.tensor([[1.0, 2.0]]), torch.tensor([0, 2]), torch.tensor([0, 0]))
    assert [x.tolist() for x in Sets.concat([shared, three])][:2] == [[[1, 2], [1, 2]], [[0, 1], [2, 3]]]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            Sets.from_list([[[1.0]]]),
            r"batch 1 has elements of shape \(1,\), torch.float32 on cpu, but batch 0 of shape",
        ),
        (
            Sets.from_list([torch.zeros(1, 2).double()]),
            r"torch.float64 on cpu, but batch 0 of shape \(2,\), torch.float3",
        ),
        (Sets.from_list([[[1.0, 2.0]]], weights=[[1.0]]), r"of the batches 0 and 1 only one has weights"),
    ],
)
def test_batches_of_different_kinds_cannot_be_joined(three, other, message):
    with pytest.raises(ValueError, match=message):
        Sets.concat([three, other])


def test_joining_no_batches_is_refused():
    with pytest.raises(ValueError, match="found no batches to join"):
        Sets.concat([])


@given(ragged_batches(), st.integers(1, 12))
def test_a_sample_is_a_subset_of_the_requested_size(sets, k):
    numbered = sets.materialize().with_values(torch.arange(sets.total)[:, None])
    chosen = numbered.sample(k, generator=torch.Generator().manual_seed(0))
    assert chosen.sizes.tolist() == sets.sizes.clamp(max=k).tolist()
    for picked, all_of_them in zip(chosen, numbered, strict=True):
        assert len(picked.unique()) == len(picked)
        assert set(picked.flatten().tolist()) <= set(all_of_them.flatten().tolist())
    if sets.weights is not None:
        assert torch.equal(chosen.weights, sets.weights[chosen.values[:, 0]])


@given(ragged_batches(), st.integers(1, 5))
def test_the_same_generator_draws_the_same_sample(sets, k):
    one, two = (sets.sample(k, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert_same(one, two)


def test_every_member_is_drawn_equally_often():
    sets = Sets.from_list([torch.arange(n)[:, None] for n in [10] * 4000])
    drawn = sets.sample(3, generator=torch.Generator().manual_seed(0)).values.flatten()
    share = torch.bincount(drawn, minlength=10) / 4000
    # 4000 draws with probability 0.3 have a standard deviation of 0.0072: five of them.
    assert float((share - 0.3).abs().max()) < 0.037


def test_a_sample_of_no_elements_is_refused(three):
    with pytest.raises(ValueError, match=r"a sample needs k >= 1 elements of each set, found k=0"):
        three.sample(0)


def test_scikit_learn_splits_a_batch_into_batches():
    sets = Sets.from_list([torch.full((n, 2), float(n)) for n in range(10)])
    train, test, y_train, y_test = train_test_split(sets, np.arange(10), random_state=0)
    assert isinstance(train, Sets)
    assert isinstance(test, Sets)
    assert train.sizes.tolist() == y_train.tolist()
    assert test.sizes.tolist() == y_test.tolist()
    for train_rows, test_rows in KFold(3, shuffle=True, random_state=0).split(sets):
        assert sets[train_rows].sizes.tolist() == train_rows.tolist()
        assert sets[test_rows].sizes.tolist() == test_rows.tolist()
    assert isinstance(resample(sets, n_samples=4, random_state=0), Sets)
