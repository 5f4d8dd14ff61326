"""Lists, flat, padded and nested arrays to sets and back."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsets import Sets
from tests.strategies import assert_same, pairs, ragged_batches


@given(ragged_batches(weights=False))
def test_list_round_trip(sets):
    assert_same(Sets.from_list(sets.to_list()), sets)


@given(ragged_batches(weights=True))
def test_weights_given_per_set_follow_their_elements(sets):
    assert_same(Sets.from_list(sets.to_list(), weights=[w for _, w in pairs(sets)]), sets)


@pytest.mark.parametrize(
    "array",
    [
        [[1.0, 2.0], [3.0, 4.0]],
        ((1.0, 2.0), (3.0, 4.0)),
        np.array([[1, 2], [3, 4]], dtype=np.float32),
        np.array([[3, 4], [1, 2]], dtype=np.float32)[::-1],
        np.array([[1, 2], [3, 4]], dtype=">f4"),
        [np.array([1, 2], dtype=np.float32), np.array([3, 4], dtype=np.float32)],
        torch.tensor([[1.0, 3.0], [2.0, 4.0]]).T,
    ],
    ids=["list", "tuple", "numpy", "reversed", "big-endian", "list-of-arrays", "transposed"],
)
def test_any_array_of_numbers_makes_a_set(array):
    sets = Sets.from_list([array])
    assert sets.values.tolist() == [[1, 2], [3, 4]]
    assert sets.dtype == torch.float32


def test_a_read_only_array_makes_a_set():
    array = np.ones((2, 3))
    array.flags.writeable = False
    assert torch.equal(Sets.from_list([array]).values, torch.ones(2, 3, dtype=torch.float64))


def test_an_empty_list_takes_the_width_of_the_other_sets():
    assert [tuple(x.shape) for x in Sets.from_list([[], [[1.0, 2.0]], []])] == [(0, 2), (1, 2), (0, 2)]


def test_sets_that_are_all_empty_keep_their_width():
    assert Sets.from_list([torch.zeros(0, 4), []]).shape == (2, 4)


def test_elements_may_be_images_or_plain_numbers():
    assert Sets.from_list([torch.zeros(5, 1, 28, 28)]).shape == (1, 1, 28, 28)
    numbers = Sets.from_list([[1, 2, 3], [4]])
    assert (numbers.shape, numbers.width, numbers.dtype) == ((2,), 1, torch.int64)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            [torch.zeros(8, 3), torch.zeros(5, 4)],
            r"set 1 has elements with 4 features, but set 0 has 3: all elements of a batch need the same shape. "
            r"Found shapes \(8, 3\), …, \(5, 4\)",
        ),
        ([torch.zeros(8, 3), torch.zeros(5)], r"set 1 has elements of shape \(\), but set 0 has 3"),
        ([], r"found no sets: a list of at least one array is needed"),
        ([[], []], r"all sets are empty and none has a known width: give arrays of shape \(0, width\)"),
        ([torch.zeros(2, 3), torch.tensor(1.0)], r"set 1 is a single number; expected an array \(elements, features\)"),
        ([torch.zeros(2, 0)], r"elements need at least one feature, found values of shape \(2, 0\)"),
        ([torch.zeros(2, 1), torch.zeros(2, 1).double()], r"set 1 is torch.float64, but set 0 is torch.float32"),
        ([torch.zeros(2, 1), torch.zeros(2, 1, device="meta")], r"set 1 is on meta, but set 0 on cpu"),
        ([["cat", "dog"]], r"set 0 cannot be read as an array of numbers \(found list\).*For tokens use Sets.from_ids"),
        ([np.array(["cat"])], r"set 0 cannot be read as an array of numbers \(found <U3 of shape \(1,\)\)"),
        ([[[1.0]], None], r"set 1 cannot be read as an array of numbers \(found NoneType\)"),
        ([[[1.0, 2.0], [3.0]]], r"set 0 cannot be read as an array of numbers \(found list\)"),
        ([[np.ones(2), np.ones(3)]], r"set 0 cannot be read as an array of numbers \(found list\)"),
        ([[[0.0]], [[1.0], [float("nan")]]], r"values must be finite: set 1, element 1 holds \[nan\]"),
        ([[[0.0, 1.0]], [[1.0, float("inf")]]], r"values must be finite: set 1, element 0 holds \[1.0, inf\]"),
        ([[0.0], [1.0, float("-inf")]], r"values must be finite: set 1, element 1 holds \[-inf\]"),
    ],
)
def test_invalid_lists_are_refused(arrays, message):
    with pytest.raises(ValueError, match=message):
        Sets.from_list(arrays)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[1.0]], r"found 1 arrays of weights for 2 sets"),
        ([[1.0], [1.0, 2.0, 3.0]], r"set 1 has 2 elements, but its weights have shape \(3,\)"),
        ([[1.0], [1.0, -2.0]], r"weights must not be negative: set 1, element 1 has weight -2.0"),
        ([[float("nan")], [1.0, 2.0]], r"weights must be finite: set 0, element 0 holds \[nan\]"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        Sets.from_list([[[1.0]], [[2.0], [3.0]]], weights=weights)


@given(ragged_batches(index=False))
def test_lists_are_views_of_the_values(sets):
    start = sets.values.data_ptr()
    assert all(x.untyped_storage().data_ptr() == start for x in sets.to_list() if x.numel())


@given(ragged_batches(weights=False), st.sampled_from([0.0, -7.0]))
def test_padded_round_trip(sets, fill):
    padded, mask = sets.to_padded(fill)
    assert mask.sum(1).tolist() == sets.sizes.tolist()
    assert bool((padded[~mask] == fill).all())
    assert_same(Sets.from_padded(padded, mask), sets)


def test_values_of_the_padding_are_ignored():
    padded = torch.tensor([[[1.0], [torch.nan]], [[torch.inf], [2.0]]])
    sets = Sets.from_padded(padded.numpy(), [[1, 0], [0, 1]])
    assert [x.tolist() for x in sets] == [[[1.0]], [[2.0]]]


@pytest.mark.parametrize(
    ("padded", "mask", "message"),
    [
        (torch.zeros(2, 3, 1), torch.ones(2, 2), r"the first two axes of the batch, \(2, 3\); found \(2, 2\)"),
        (torch.zeros(2, 3, 1), torch.ones(2, 3, 1), r"the first two axes of the batch, \(2, 3\); found \(2, 3, 1\)"),
        (torch.zeros(2, 1, 1), torch.tensor([[1], [2]]), r"must hold True and False \(or 1 and 0\), found 2"),
        (torch.zeros(1, 2, 1), torch.tensor([[0.5, 1]]), r"must hold True and False \(or 1 and 0\), found 0.5"),
        (torch.zeros(3), torch.ones(3), r"a padded batch has shape \(B, M, ...\), found \(3,\)"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(padded, mask, message):
    with pytest.raises(ValueError, match=message):
        Sets.from_padded(padded, mask)


def test_partly_missing_elements_are_not_padding():
    padded = np.array([[[1.0, np.nan], [np.nan, np.nan]]])
    with pytest.raises(ValueError, match=r"values must be finite: set 0, element 0 holds \[1.0, nan\]"):
        Sets.from_padded(padded)


@given(ragged_batches(weights=False))
def test_nan_marks_the_padding(sets):
    assert_same(Sets.from_padded(sets.to_padded(torch.nan)[0], mask="nan"), sets)


def test_an_unknown_kind_of_mask_is_refused():
    with pytest.raises(ValueError, match=r"the mask must be an array \(B, M\) or 'nan', found 'zero'"):
        Sets.from_padded(torch.zeros(1, 1, 1), "zero")


@given(ragged_batches())
def test_lengths_round_trip(sets):
    flat = sets.materialize()
    assert_same(Sets.from_lengths(flat.values.numpy(), flat.sizes.tolist(), weights=flat.weights), sets)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([2, 2], r"the lengths add up to 4, but there are 3 elements"),
        ([4, -1], r"lengths must not be negative: set 1 has -1"),
        ([1.5, 1.5], r"lengths must be a vector of integers, found shape \(2,\) of torch.float32"),
        ([[3]], r"lengths must be a vector of integers, found shape \(1, 1\)"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(lengths, message):
    with pytest.raises(ValueError, match=message):
        Sets.from_lengths(torch.zeros(3, 1), lengths)


@given(ragged_batches(weights=False))
def test_nested_tensors_round_trip(sets):
    nested = sets.to_nested()
    assert nested.layout == torch.jagged
    for x, y in zip(sets, nested.unbind(), strict=True):
        assert torch.equal(x, y)
    assert_same(Sets.from_nested(nested), sets)


def test_nested_tensors_share_their_values():
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged)
    assert Sets.from_nested(nested).values.data_ptr() == nested.values().data_ptr()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
def test_strided_and_sliced_nested_tensors_are_read():
    parts = [torch.randn(2, 3), torch.randn(1, 3)]
    assert_same(Sets.from_nested(torch.nested.nested_tensor(parts)), Sets.from_list(parts))
    holes = torch.nested.narrow(torch.randn(2, 5, 3), 1, torch.tensor([0, 1]), torch.tensor([2, 4]), torch.jagged)
    assert Sets.from_nested(holes).sizes.tolist() == [2, 4]


def test_a_plain_tensor_is_not_nested():
    with pytest.raises(ValueError, match=r"from_nested takes a nested tensor, found Tensor"):
        Sets.from_nested(torch.zeros(2, 3))


def test_missing_values_pass_where_they_are_allowed():
    sets = Sets.from_list([[[1.0], [float("nan")]]], ensure_finite=False)
    assert bool(sets.values[1].isnan())


def test_masked_arrays_are_refused():
    with pytest.raises(ValueError, match=r"masked arrays are not supported"):
        Sets.from_list([np.ma.masked_array([1.0, 2.0], mask=[False, True])])
