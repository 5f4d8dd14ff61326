"""Ways in and out of a batch, selection, and the sentences of every refusal."""

import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import KFold, train_test_split
from sklearn.utils import resample

from deepsets import Sets
from tests.strategies import pairs, ragged_batches


def same(a: Sets, b: Sets) -> None:
    """Both hold the same elements in the same places, whatever the storage."""
    assert torch.equal(a.offsets, b.offsets)
    assert a.dtype == b.dtype
    assert torch.equal(a.materialize().values, b.materialize().values)
    assert (a.weights is None) == (b.weights is None)
    assert a.weights is None or torch.equal(a.weights, b.weights)


@pytest.fixture
def three():
    """Three sets of 2, 0 and 3 elements with two features each."""
    return Sets.from_list([torch.arange(4.0).reshape(2, 2), [], torch.arange(4.0, 10).reshape(3, 2)])


# -------------------------------------------------------------------------------------------------- lists


@given(ragged_batches(weights=False))
def test_a_list_of_tensors_comes_back_as_it_went_in(sets):
    same(Sets.from_list(sets.to_list()), sets)


@given(ragged_batches(weights=True))
def test_weights_given_set_by_set_stand_beside_their_elements(sets):
    same(Sets.from_list(sets.to_list(), weights=[w for _, w in pairs(sets)]), sets)


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
    ("arrays", "sentence"),
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
def test_a_list_that_is_no_batch_is_refused(arrays, sentence):
    with pytest.raises(ValueError, match=sentence):
        Sets.from_list(arrays)


def test_an_infinite_element_behind_empty_sets_is_named_by_its_own_set():
    with pytest.raises(ValueError, match=r"set 3, element 0 holds \[inf\]"):
        Sets.from_list([[], [[1.0]], [], [[torch.inf]], []])


def test_large_finite_values_whose_sum_overflows_are_welcome():
    assert Sets.from_list([torch.full((4, 1), 3e38)]).total == 4


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ([[1.0]], r"found 1 arrays of weights for 2 sets"),
        ([[1.0], [1.0, 2.0, 3.0]], r"set 1 has 2 elements, but its weights have shape \(3,\)"),
        ([[1.0], [1.0, -2.0]], r"weights must not be negative: set 1, element 1 has weight -2.0"),
        ([[float("nan")], [1.0, 2.0]], r"weights must be finite: set 0, element 0 holds \[nan\]"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights, sentence):
    with pytest.raises(ValueError, match=sentence):
        Sets.from_list([[[1.0]], [[2.0], [3.0]]], weights=weights)


# -------------------------------------------------------------------------------------------- the four parts


@pytest.mark.parametrize(
    ("offsets", "sentence"),
    [
        ([1, 3], r"offsets must begin with 0, found 1"),
        (
            [0, 2, 1, 3],
            r"offsets must not decrease: set 1 would begin at 2 and end at 1, a negative size of -1",
        ),
        ([0, 2], r"offsets end at 2, but there are 3 elements"),
        ([0, 4], r"offsets end at 4, but there are 3 elements"),
        ([], r"offsets must be a vector of B \+ 1 integers, found shape \(0,\)"),
        ([[0, 3]], r"offsets must be a vector of B \+ 1 integers, found shape \(1, 2\)"),
        ([0.0, 3.0], r"offsets must be a vector of B \+ 1 integers, found shape \(2,\) of torch.float32"),
    ],
)
def test_offsets_that_do_not_fit_are_refused(offsets, sentence):
    with pytest.raises(ValueError, match=sentence):
        Sets(torch.zeros(3, 1), torch.tensor(offsets))


def test_unsigned_offsets_that_fall_are_refused_too():
    with pytest.raises(ValueError, match="set 1 would begin at 3 and end at 2"):
        Sets(torch.zeros(2, 1), torch.tensor([0, 3, 2], dtype=torch.uint8))


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        (torch.tensor([0, 3]), r"element_ids\[1\] is 3, but there are 3 distinct elements \(0..2\)"),
        (torch.tensor([-1, 0]), r"element_ids\[0\] is -1, but there are 3 distinct elements"),
        (torch.tensor([0.0, 1.0]), r"element_ids must be a vector of integers, found shape \(2,\) of torch.float32"),
        (torch.tensor([[0, 1]]), r"element_ids must be a vector of integers, found shape \(1, 2\) of torch.int64"),
    ],
)
def test_an_index_that_points_nowhere_is_refused(index, sentence):
    with pytest.raises(ValueError, match=sentence):
        Sets(torch.zeros(3, 1), torch.tensor([0, 2]), index)


def test_parts_that_are_no_tensors_are_refused():
    with pytest.raises(ValueError, match=r"offsets must be a torch.Tensor, found list. Sets.from_list takes arrays"):
        Sets(torch.zeros(3, 1), [0, 3])


def test_parts_on_two_devices_are_refused():
    with pytest.raises(ValueError, match=r"must be on one device: values are on cpu, offsets on meta"):
        Sets(torch.zeros(3, 1), torch.tensor([0, 3], device="meta"))


def test_a_single_number_is_not_a_batch():
    with pytest.raises(ValueError, match=r"elements on their first axis, \(N, ...\); found a single number"):
        Sets(torch.tensor(1.0), torch.tensor([0, 1]))


@pytest.mark.parametrize("weights", [torch.ones(2), torch.ones(3, 1), torch.ones(3, dtype=torch.long)])
def test_weights_need_one_floating_number_for_each_element(weights):
    with pytest.raises(ValueError, match=r"one floating-point number for each of the 3 elements, shape \(3,\); found"):
        Sets(torch.zeros(3, 1), torch.tensor([0, 3]), weights=weights)


def test_a_stored_element_that_is_not_finite_is_named_by_its_row():
    with pytest.raises(ValueError, match=r"values must be finite: element 1 holds \[nan\]"):
        Sets(torch.tensor([[0.0], [torch.nan]]), torch.tensor([0, 1]), torch.tensor([0]))


# --------------------------------------------------------------------------------------------------- padded


@given(ragged_batches(weights=False), st.sampled_from([0.0, -7.0]))
def test_padding_goes_there_and_back(sets, fill):
    padded, mask = sets.to_padded(fill)
    assert mask.sum(1).tolist() == sets.sizes.tolist()
    assert bool((padded[~mask] == fill).all())
    same(Sets.from_padded(padded, mask), sets)


def test_what_stands_in_the_padding_does_not_matter():
    padded = torch.tensor([[[1.0], [torch.nan]], [[torch.inf], [2.0]]])
    sets = Sets.from_padded(padded.numpy(), [[1, 0], [0, 1]])
    assert [x.tolist() for x in sets] == [[[1.0]], [[2.0]]]


@pytest.mark.parametrize(
    ("padded", "mask", "sentence"),
    [
        (torch.zeros(2, 3, 1), torch.ones(2, 2), r"the first two axes of the batch, \(2, 3\); found \(2, 2\)"),
        (torch.zeros(2, 3, 1), torch.ones(2, 3, 1), r"the first two axes of the batch, \(2, 3\); found \(2, 3, 1\)"),
        (torch.zeros(2, 1, 1), torch.tensor([[1], [2]]), r"must hold True and False \(or 1 and 0\), found 2"),
        (torch.zeros(1, 2, 1), torch.tensor([[0.5, 1]]), r"must hold True and False \(or 1 and 0\), found 0.5"),
        (torch.zeros(3), torch.ones(3), r"a padded batch has shape \(B, M, ...\), found \(3,\)"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(padded, mask, sentence):
    with pytest.raises(ValueError, match=sentence):
        Sets.from_padded(padded, mask)


# ---------------------------------------------------------------------------------------------------- arrow


@given(ragged_batches(weights=False))
def test_arrow_goes_there_and_back(sets):
    same(Sets.from_arrow(sets.to_arrow()), sets)


def test_arrow_elements_are_not_copied():
    column = pa.array([[1.0, 2.0], [], [3.0]], pa.list_(pa.float32()))
    assert Sets.from_arrow(column).values.data_ptr() == column.values.buffers()[1].address
    vectors = pa.array([[[1.0, 2.0]], [[3.0, 4.0]]], pa.large_list(pa.list_(pa.float64(), 2)))
    assert Sets.from_arrow(vectors).values.data_ptr() == vectors.values.values.buffers()[1].address


def test_values_are_given_to_arrow_without_a_copy():
    sets = Sets.from_list([torch.ones(2, 3), torch.ones(1, 3)])
    assert sets.to_arrow().values.values.buffers()[1].address == sets.values.data_ptr()


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.uint8(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("outer", [pa.list_, pa.large_list])
def test_arrow_numbers_of_any_kind_make_sets(kind, outer):
    assert [x.tolist() for x in Sets.from_arrow(pa.array([[1, 2], [], [3]], outer(kind)))] == [[1, 2], [], [3]]


def test_chunks_of_an_arrow_column_are_joined():
    chunked = pa.chunked_array([[[1.0], [2.0, 3.0]], [], [[], [4.0]]], pa.list_(pa.float64()))
    assert [x.tolist() for x in Sets.from_arrow(chunked)] == [[1], [2, 3], [], [4]]
    assert len(Sets.from_arrow(pa.chunked_array([], pa.list_(pa.float64())))) == 0


@given(ragged_batches(weights=False, min_sets=2), st.data())
def test_a_slice_of_an_arrow_column_is_a_slice_of_the_sets(sets, data):
    start = data.draw(st.integers(0, len(sets)))
    stop = data.draw(st.integers(start, len(sets)))
    same(Sets.from_arrow(sets.to_arrow()[start:stop]), sets[start:stop])


def test_arrow_elements_may_be_matrices():
    sets = Sets.from_list([torch.arange(12.0).reshape(2, 2, 3), torch.zeros(1, 2, 3)])
    same(Sets.from_arrow(sets.to_arrow()), sets)


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (pa.array([[1.0], None]), r"set 1 is null: an empty list is an empty set, null is not a set"),
        (pa.array([[1.0], [2.0, None]]), r"set 1, element 1 holds a null; impute or drop it first"),
        (
            pa.array([[[1.0, 2.0]], [[3.0, None]]], pa.list_(pa.list_(pa.float32(), 2))),
            r"set 1, element 0 holds a null",
        ),
        (pa.array([[[1.0, 2.0], None]], pa.list_(pa.list_(pa.float32(), 2))), r"set 0, element 1 holds a null"),
        (pa.array([1.0]), r"expected an Arrow list column \(list<…> or large_list<…>\), found double"),
        (pa.array([["cat"]]), r"elements must be numbers .* found string. For tokens: Sets.from_ids"),
        (pa.array([[[1.0], [1.0, 2.0]]]), r"fixed-size lists of numbers, found list<item: double>"),
        (pa.array([[1.0, float("nan")]]), r"values must be finite: set 0, element 1 holds \[nan\]"),
        ([[1.0]], r"expected an Arrow array or chunked array, or .* found list"),
    ],
)
def test_an_arrow_column_that_is_no_batch_is_refused(column, sentence):
    with pytest.raises(ValueError, match=sentence):
        Sets.from_arrow(column)


# --------------------------------------------------------------------------------------------------- frames

frames = pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])


@frames
def test_rows_of_a_table_become_sets_in_the_order_of_first_appearance(frame):
    table = frame({"basket": ["b", "a", "b", "c", "a"], "price": [1.0, 2.0, 3.0, 4.0, 5.0], "kilos": [1, 2, 3, 4, 5]})
    sets = Sets.from_frame(table, by="basket")
    assert [x.tolist() for x in sets] == [[[1, 1], [3, 3]], [[2, 2], [5, 5]], [[4, 4]]]
    assert sets.dtype == torch.float32


@frames
def test_several_columns_together_name_a_set(frame):
    table = frame({"shop": [1, 1, 2, 1, 2], "day": ["x", "y", "x", "x", "x"], "v": [1.0, 2.0, 3.0, 4.0, 5.0]})
    sets = Sets.from_frame(table, by=["shop", "day"])
    assert [x.flatten().tolist() for x in sets] == [[1, 4], [2], [3, 5]]


@frames
def test_columns_and_weights_of_a_table_can_be_chosen(frame):
    table = frame({"id": [1, 1], "a": [1.0, 2.0], "b": [3.0, 4.0], "name": ["x", "y"], "count": [2, 3]})
    sets = Sets.from_frame(table, by="id", columns=["b", "a"], weights="count")
    assert sets.values.tolist() == [[3, 1], [4, 2]]
    assert sets.weights.tolist() == [2, 3]


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("xyz")), min_size=1, max_size=30))
def test_grouping_a_table_equals_the_plain_loop(keys):
    groups = {}
    for row, key in enumerate(keys):
        groups.setdefault(key, []).append(float(row))
    table = pd.DataFrame(keys, columns=["k", "l"]).assign(row=np.arange(len(keys)))
    for frame in (table, pl.DataFrame({c: table[c].tolist() for c in table})):
        assert [x.flatten().tolist() for x in Sets.from_frame(frame, by=["k", "l"])] == list(groups.values())


def test_numbers_and_their_spelling_name_two_sets():
    table = pd.DataFrame({"g": pd.Series([1, "1", 1], dtype=object), "x": [1.0, 2.0, 3.0]})
    assert Sets.from_frame(table, by="g").sizes.tolist() == [2, 1]


def test_a_table_whose_columns_are_numbered_makes_sets():
    table = pd.DataFrame(np.array([[7.0, 1.0, 2.0], [7.0, 3.0, 4.0]]))
    assert Sets.from_frame(table, by=[0]).values.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "keys",
    [
        pd.Series(["a", None, "a"]),
        pd.Series([1.0, np.nan, 1.0]),
        pd.Series([1, None, 1], dtype="Int64"),
        pd.to_datetime(pd.Series(["2020-01-01", None, "2020-01-01"])),
        pd.Series(["a", None, "a"], dtype="category"),
    ],
    ids=["text", "float", "nullable", "date", "category"],
)
def test_a_row_without_a_set_is_refused(keys):
    with pytest.raises(ValueError, match=r"row 1 has no value in the set column 'g'"):
        Sets.from_frame(pd.DataFrame({"g": keys, "x": [1.0, 2.0, 3.0]}), by="g")


def test_a_polars_row_without_a_set_is_refused():
    for keys in (["a", None], [1, None]):
        with pytest.raises(ValueError, match=r"row 1 has no value in the set column 'g'"):
            Sets.from_frame(pl.DataFrame({"g": keys, "x": [1.0, 2.0]}), by="g")


@frames
@pytest.mark.parametrize(
    ("columns", "arguments", "sentence"),
    [
        ({"g": [1], "x": [1.0]}, {"by": "h"}, r"the table has no column 'h'; it has: g, x"),
        ({"g": [1], "x": [1.0]}, {"by": "g", "columns": ["y"]}, r"the table has no column 'y'; it has: g, x"),
        ({"g": [1], "x": [1.0]}, {"by": "g", "weights": "w"}, r"the table has no column 'w'; it has: g, x"),
        ({"g": [1]}, {"by": "g"}, r"no feature columns are left beside g; the table has: g"),
        ({"g": [1], "x": [1.0]}, {"by": []}, r"by names no column"),
        ({"g": [], "x": []}, {"by": "g"}, r"the table has no rows, so there are no sets"),
        (
            {"g": [1, 1], "x": ["red", "blue"]},
            {"by": "g"},
            r"column 'x' must hold numbers, but row 0 is 'red'. Choose the feature columns with columns=\[…\]",
        ),
        (
            {"g": [1, 1], "x": [1.0, float("nan")]},
            {"by": "g"},
            r"values must be finite: set 0, element 1 holds \[nan\]",
        ),
        ({"g": [1, 1], "x": [1.0, None]}, {"by": "g"}, r"values must be finite: set 0, element 1 holds \[nan\]"),
        (
            {"g": [1, 1], "x": [1.0, 2.0], "w": [1.0, -1.0]},
            {"by": "g", "weights": "w"},
            r"weights must not be negative: set 0, element 1 has weight -1.0",
        ),
    ],
)
def test_a_table_that_is_no_batch_is_refused(frame, columns, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        Sets.from_frame(frame(columns), **arguments)


def test_dates_are_not_features():
    table = pd.DataFrame({"g": [1], "x": pd.to_datetime(["2020-01-01"])})
    with pytest.raises(ValueError, match=r"column 'x' must hold numbers, but row 0 is '2020-01-01"):
        Sets.from_frame(table, by="g")


# ------------------------------------------------------------------------------------------------------ ids


@pytest.mark.parametrize("vocabulary", [["ant", "bee", "cat"], {"ant": 0, "bee": 1, "cat": 2}])
def test_tokens_become_their_numbers_in_the_vocabulary(vocabulary):
    sets = Sets.from_ids([["cat", "ant"], [], ("bee",)], vocabulary)
    assert [x.tolist() for x in sets] == [[2, 0], [], [1]]
    assert sets.dtype == torch.int64


@pytest.mark.parametrize(
    ("lists", "vocabulary", "sentence"),
    [
        (
            [["cat"], ["ant", "cats"]],
            ["ant", "cat"],
            r"set 1 holds 'cats', which is not in the vocabulary of 2 tokens. Similar tokens: cat",
        ),
        ([[17]], [1, 2, 3], r"set 0 holds 17, which is not in the vocabulary of 3 tokens\."),
        ([["ant"]], ["ant", "bee", "ant"], r"the vocabulary has 3 entries, but 'ant' occurs twice"),
        (["ant"], ["ant"], r"set 0 is the string 'ant'; expected a list of tokens"),
    ],
)
def test_tokens_that_are_not_known_are_refused(lists, vocabulary, sentence):
    with pytest.raises(ValueError, match=sentence):
        Sets.from_ids(lists, vocabulary)


# ------------------------------------------------------------------------------------------------ selection


def test_a_batch_counts_its_sets_and_elements(three):
    assert len(three) == 3
    assert three.total == 5
    assert three.sizes.tolist() == [2, 0, 3]
    assert three.set_ids.tolist() == [0, 0, 2, 2, 2]
    assert three.shape == (3, 2)
    assert three.width == 2


@given(ragged_batches(weights=True))
def test_counts_are_the_sums_of_the_weights_in_the_dtype_of_the_values(sets):
    wanted = torch.stack([w.sum() for _, w in pairs(sets)])
    torch.testing.assert_close(sets.counts, wanted)
    mixed = Sets(sets.values, sets.offsets, sets.element_ids, sets.weights.float())
    assert mixed.counts.dtype == sets.dtype


def test_counts_without_weights_are_the_sizes(three):
    assert three.counts.tolist() == [2.0, 0.0, 3.0]
    assert three.to(dtype=torch.float64).counts.dtype == torch.float64
    assert Sets.from_ids([["a"]], ["a"]).counts.dtype == torch.float32


def test_an_integer_asks_for_the_elements_of_one_set(three):
    for key in (2, -1, np.int64(2), torch.tensor(2)):
        assert three[key].tolist() == [[4, 5], [6, 7], [8, 9]]
    assert three[1].shape == (0, 2)


@given(ragged_batches(), st.data())
def test_choosing_sets_equals_choosing_from_the_list(sets, data):
    which = data.draw(st.lists(st.integers(-len(sets), len(sets) - 1), max_size=10))
    weights = [w for _, w in pairs(sets)]
    for key in (which, np.array(which, dtype=int), torch.tensor(which, dtype=torch.long), (which, ...)):
        chosen = sets[key]
        assert len(chosen) == len(which)
        for (x, w), i in zip(pairs(chosen), which, strict=True):
            assert torch.equal(x, sets[i])
            assert torch.equal(w, weights[i])


@given(ragged_batches(), st.data())
def test_a_mask_or_a_slice_chooses_the_sets_it_chooses_from_a_list(sets, data):
    mask = data.draw(st.lists(st.booleans(), min_size=len(sets), max_size=len(sets)))
    same(sets[mask], sets[[b for b, m in enumerate(mask) if m]])
    same(sets[np.array(mask)], sets[torch.tensor(mask)])
    cut = data.draw(st.slices(len(sets)))
    same(sets[cut], sets[list(range(len(sets)))[cut]])


def test_reversed_and_read_only_arrays_choose_sets(three):
    assert three[np.arange(3)[::-1]].sizes.tolist() == [3, 0, 2]
    key = np.array([2, 0])
    key.flags.writeable = False
    assert three[key].sizes.tolist() == [3, 2]


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (3, r"set 3 was asked for, but the batch has 3 sets"),
        (-4, r"set -4 was asked for, but the batch has 3 sets"),
        ([0, 3], r"set 3 was asked for, but the batch has 3 sets"),
        ([True, False], r"the mask has shape \(2,\), but the batch has 3 sets"),
        ([0.0, 1.0], r"chosen by a vector of integers, found shape \(2,\) of torch.float64"),
        ([[0, 1]], r"chosen by a vector of integers, found shape \(1, 2\) of torch.int64"),
    ],
)
def test_sets_that_are_not_there_cannot_be_chosen(three, key, sentence):
    with pytest.raises(IndexError, match=sentence):
        three[key]


def test_a_batch_has_one_axis(three):
    with pytest.raises(ValueError, match=r"takes one index, or `\[rows, ...\]`; found 2: \(0, 1\)"):
        three[0, 1]


@given(ragged_batches())
def test_iteration_gives_the_sets_one_after_another(sets):
    found = list(sets)
    assert len(found) == len(sets)
    assert all(torch.equal(x, sets[b]) for b, x in enumerate(found))


@given(ragged_batches(index=False))
def test_lists_are_views_of_the_values(sets):
    start = sets.values.data_ptr()
    assert all(x.untyped_storage().data_ptr() == start for x in sets.to_list() if x.numel())


@given(ragged_batches())
def test_a_mapped_batch_holds_the_mapped_elements(sets):
    for x, y in zip(sets, sets.map(lambda rows: rows.exp().sum(1, keepdim=True)), strict=True):
        assert torch.equal(y, x.exp().sum(1, keepdim=True))


@given(ragged_batches(index=True))
def test_a_map_never_sees_more_rows_than_elements_nor_than_stored_elements(sets):
    seen = []
    sets.map(lambda rows: seen.append(len(rows)) or rows)
    assert len(seen) == 1
    assert seen[0] <= min(len(sets.values), sets.total)


@given(ragged_batches(index=False, weights=False), st.data())
def test_joining_batches_joins_their_lists(sets, data):
    cut = data.draw(st.integers(0, len(sets)))
    same(Sets.concat([sets[:cut], sets[cut:]]), sets)


@given(ragged_batches(index=True, weights=True), st.data())
def test_joined_batches_that_share_their_elements_go_on_sharing_them(sets, data):
    cut = data.draw(st.integers(0, len(sets)))
    joined = Sets.concat([sets[:cut], sets[cut:]])
    assert joined.values is sets.values
    same(joined, sets)


def test_batches_with_other_stores_are_joined_element_by_element(three):
    shared = Sets(torch.tensor([[1.0, 2.0]]), torch.tensor([0, 2]), torch.tensor([0, 0]))
    assert [x.tolist() for x in Sets.concat([shared, three])][:2] == [[[1, 2], [1, 2]], [[0, 1], [2, 3]]]


@pytest.mark.parametrize(
    ("other", "sentence"),
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
def test_batches_of_other_kinds_cannot_be_joined(three, other, sentence):
    with pytest.raises(ValueError, match=sentence):
        Sets.concat([three, other])


def test_nothing_cannot_be_joined():
    with pytest.raises(ValueError, match="found no batches to join"):
        Sets.concat([])


# --------------------------------------------------------------------------------------------------- sample


@given(ragged_batches(), st.integers(1, 12))
def test_a_sample_is_a_subset_of_the_wanted_size(sets, k):
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
    same(one, two)


def test_every_member_is_drawn_equally_often():
    sets = Sets.from_list([torch.arange(n)[:, None] for n in [10] * 4000])
    drawn = sets.sample(3, generator=torch.Generator().manual_seed(0)).values.flatten()
    share = torch.bincount(drawn, minlength=10) / 4000
    # 4000 draws with probability 0.3 have a standard deviation of 0.0072: five of them.
    assert float((share - 0.3).abs().max()) < 0.037


def test_a_sample_of_nothing_is_refused(three):
    with pytest.raises(ValueError, match=r"a sample needs k >= 1 elements of each set, found k=0"):
        three.sample(0)


# ------------------------------------------------------------------------------------- scikit-learn, moves, files


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


@given(ragged_batches(index=True, weights=True))
def test_a_change_of_dtype_changes_values_and_weights_only(sets):
    half = sets.to(dtype=torch.float16)
    assert (half.dtype, half.weights.dtype) == (torch.float16, torch.float16)
    assert torch.equal(half.offsets, sets.offsets)
    assert torch.equal(half.element_ids, sets.element_ids)
    assert half.element_ids.dtype == torch.int64


def test_a_move_takes_all_parts_along(three):
    moved = Sets.from_list([[[1.0]]], weights=[[2.0]]).to("meta")
    assert {moved.values.device.type, moved.offsets.device.type, moved.weights.device.type} == {"meta"}
    assert three.device.type == "cpu"


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        (Sets.from_list([[[1.0, 2.0]], []]), "Sets(2 sets, 1 elements of 2 features, sizes 0..1, float32)"),
        (Sets.from_ids([["a"]], ["a"]), "Sets(1 sets, 1 elements of one value, sizes 1..1, int64)"),
        (Sets.from_list([torch.zeros(2, 4, 5)]), "Sets(1 sets, 2 elements of shape (4, 5), sizes 2..2, float32)"),
        (Sets.from_ids([], ["a"]), "Sets(0 sets, 0 elements of one value, empty, int64)"),
        (
            Sets(torch.zeros(1, 2).double(), torch.tensor([0, 2]), torch.tensor([0, 0]), torch.ones(2)),
            "Sets(1 sets, 2 elements of 2 features, sizes 2..2, 1 distinct, weighted, float64)",
        ),
    ],
)
def test_a_batch_says_what_it_holds(sets, text):
    assert repr(sets) == text


@given(ragged_batches())
def test_copies_and_pickles_hold_the_same_sets(sets):
    for other in (copy.copy(sets), copy.deepcopy(sets), pickle.loads(pickle.dumps(sets))):
        same(other, sets)
        assert (other.element_ids is None) == (sets.element_ids is None)


@given(ragged_batches())
def test_what_belongs_to_a_set_is_spread_to_its_members(sets):
    spread = sets.broadcast(torch.arange(len(sets)))
    assert spread.tolist() == [b for b, n in enumerate(sets.sizes.tolist()) for _ in range(n)]
