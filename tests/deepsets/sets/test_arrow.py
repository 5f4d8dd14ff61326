"""Arrow columns to sets and back, and libraries that speak the Arrow C interface."""

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsets import Sets
from tests.strategies import assert_same, ragged_batches


@given(ragged_batches(weights=False))
def test_arrow_round_trip(sets):
    assert_same(Sets.from_arrow(sets.to_arrow()), sets)


def test_arrow_elements_are_not_copied():
    column = pa.array([[1.0, 2.0], [], [3.0]], pa.list_(pa.float32()))
    assert Sets.from_arrow(column).values.data_ptr() == column.values.buffers()[1].address
    vectors = pa.array([[[1.0, 2.0]], [[3.0, 4.0]]], pa.large_list(pa.list_(pa.float64(), 2)))
    assert Sets.from_arrow(vectors).values.data_ptr() == vectors.values.values.buffers()[1].address


def test_to_arrow_shares_the_values():
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
    assert_same(Sets.from_arrow(sets.to_arrow()[start:stop]), sets[start:stop])


def test_arrow_elements_may_be_matrices():
    sets = Sets.from_list([torch.arange(12.0).reshape(2, 2, 3), torch.zeros(1, 2, 3)])
    assert_same(Sets.from_arrow(sets.to_arrow()), sets)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([[1.0], None]), r"set 1 is null: an empty list is an empty set, null is not a set"),
        (pa.array([[1.0], [2.0, None]]), r"set 1, element 1 holds a null; impute or drop it first"),
        (
            pa.array([[[1.0, 2.0]], [[3.0, None]]], pa.list_(pa.list_(pa.float32(), 2))),
            r"set 1, element 0 holds a null",
        ),
        (pa.array([[[1.0, 2.0], None]], pa.list_(pa.list_(pa.float32(), 2))), r"set 0, element 1 holds a null"),
        (pa.array([1.0]), r"expected an Arrow list column \(list<…> or large_list<…>\), found double"),
        (
            pa.array([["cat"]]),
            r"elements must be numbers, or lists or structs of numbers, found string. For tokens: Sets.from_ids",
        ),
        (
            pa.array([[[1.0], [1.0, 2.0]]]),
            r"set 0, element 1 has 2 numbers, but the first element has 1: all elements need the same",
        ),
        (pa.array([[1.0, float("nan")]]), r"values must be finite: set 0, element 1 holds \[nan\]"),
        ([[1.0]], r"expected an Arrow array or chunked array, or .* found list"),
    ],
)
def test_invalid_arrow_columns_are_refused(column, message):
    with pytest.raises(ValueError, match=message):
        Sets.from_arrow(column)


@pytest.mark.parametrize("outer", [pa.list_, pa.large_list])
def test_structs_become_features_in_the_order_of_their_fields(outer):
    kind = outer(pa.struct([("x", pa.float32()), ("n", pa.int16()), ("yes", pa.bool_())]))
    column = pa.array([[{"x": 1.5, "n": 2, "yes": True}], [], [{"x": -1.0, "n": 0, "yes": False}] * 2], kind)
    sets = Sets.from_arrow(column)
    assert [x.tolist() for x in sets] == [[[1.5, 2, 1]], [], [[-1, 0, 0]] * 2]
    assert sets.dtype == torch.float32
    assert [x.tolist() for x in Sets.from_arrow(column[1:])] == [[], [[-1, 0, 0]] * 2]


@given(ragged_batches(weights=False))
def test_lists_of_lists_of_one_length_become_features(sets):
    column = pa.array([x.tolist() for x in sets], pa.list_(pa.list_(pa.float64())))
    if sets.total:
        assert_same(Sets.from_arrow(column), sets.materialize().double())


def test_a_fixed_size_list_holds_sets_of_one_size():
    column = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2))
    assert [x.tolist() for x in Sets.from_arrow(column[1:])] == [[3, 4], [5, 6]]


def test_extension_types_are_read_through():
    class Points(pa.ExtensionType):
        def __init__(self):
            super().__init__(pa.list_(pa.float64()), "tests.points")

        def __arrow_ext_serialize__(self):
            return b""

    column = pa.ExtensionArray.from_storage(Points(), pa.array([[1.0], [2.0, 3.0]]))
    assert [x.tolist() for x in Sets.from_arrow(column)] == [[1], [2, 3]]
    chunked = pa.chunked_array([column, column])
    assert len(Sets.from_arrow(chunked)) == 4


class ArrowArray:
    """Speaks the C interface for one array, and nothing else."""

    def __init__(self, array):
        self.array = array

    def __arrow_c_array__(self, requested_schema=None):
        return self.array.__arrow_c_array__(requested_schema)


def test_any_object_with_the_c_interface_is_read():
    assert [x.tolist() for x in Sets.from_arrow(ArrowArray(pa.array([[1.0], []])))] == [[1], []]


def test_a_polars_series_is_read():
    polars = pytest.importorskip("polars")
    series = polars.Series("points", [[[1.0, 2.0]], [], [[3.0, 4.0], [5.0, 6.0]]])
    assert [x.tolist() for x in Sets.from_arrow(series)] == [[[1, 2]], [], [[3, 4], [5, 6]]]
    structs = polars.Series([[{"x": 1.0, "y": 2}], []])
    assert [x.tolist() for x in Sets.from_arrow(structs)] == [[[1, 2]], []]
    assert len(Sets.from_arrow(polars.DataFrame({"points": series}))) == 3


def test_a_duckdb_relation_is_read():
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.sql(
        "select list({'x': i, 'y': i / 2}) as points from range(5) t(i) group by i % 2 order by i % 2"
    )
    assert [x.tolist() for x in Sets.from_arrow(relation)] == [[[0, 0], [2, 1], [4, 2]], [[1, 0.5], [3, 1.5]]]


def test_a_hugging_face_data_set_is_read():
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"points": [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]]})
    assert [x.tolist() for x in Sets.from_arrow(data.with_format("arrow")["points"][:])] == [
        [[1, 2]],
        [[3, 4], [5, 6]],
    ]


def test_a_table_with_several_columns_is_refused():
    table = pa.table({"a": [[1.0]], "b": [[2.0]]})
    with pytest.raises(ValueError, match=r"found a table with the columns a, b: choose its list column first"):
        Sets.from_arrow(table)
    assert len(Sets.from_arrow(table.select(["a"]))) == 1


@pytest.mark.parametrize("offsets", [[0, 5, 300, 20], [0, 5, 10**8, 20], [0, 10, 5, 20]])
def test_offsets_that_leave_the_buffers_are_refused(offsets):
    values = pa.array([float(i) for i in range(20)])
    buffers = [None, pa.array(offsets, pa.int64()).buffers()[1]]
    column = pa.Array.from_buffers(pa.large_list(pa.float64()), 3, buffers, children=[values])
    with pytest.raises(ValueError, match=r"[Oo]ffset"):
        Sets.from_arrow(column)


def test_a_null_struct_is_located():
    column = pa.array([[{"x": 1.0}], [{"x": 2.0}, None]])
    with pytest.raises(ValueError, match=r"set 1, element 1 holds a null"):
        Sets.from_arrow(column)
