"""Tables with one row per element to sets and back."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsets import Sets
from deepsets.sets.tables import group_rows, is_missing
from tests.strategies import assert_same, ragged_batches

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
    ("columns", "arguments", "message"),
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
def test_invalid_tables_are_refused(frame, columns, arguments, message):
    with pytest.raises(ValueError, match=message):
        Sets.from_frame(frame(columns), **arguments)


def test_dates_are_not_features():
    table = pd.DataFrame({"g": [1], "x": pd.to_datetime(["2020-01-01"])})
    with pytest.raises(ValueError, match=r"column 'x' must hold numbers, but row 0 is '2020-01-01"):
        Sets.from_frame(table, by="g")


@given(ragged_batches())
def test_frame_round_trip(sets):
    frame = sets.to_frame(by="key")
    assert list(frame.columns) == ["key", "x0", "x1", "x2", *(["weight"] if sets.weights is not None else [])]
    if not sets.total:
        assert len(frame) == 0
        return
    back = Sets.from_frame(frame, by="key", weights="weight" if sets.weights is not None else None)
    assert_same(back.to(sets.dtype), sets[sets.sizes > 0].float().to(sets.dtype))


def test_a_frame_may_have_names_and_keys_of_ones_own():
    sets = Sets.from_list([[[1.0, 2.0]], [], [[3.0, 4.0]]])
    frame = sets.to_frame(by="day", columns=["a", "b"], keys=["mon", "tue", "wed"])
    assert frame.to_dict("list") == {"day": ["mon", "wed"], "a": [1.0, 3.0], "b": [2.0, 4.0]}
    with pytest.raises(ValueError, match=r"found 1 names for 2 features"):
        sets.to_frame(columns=["a"])
    with pytest.raises(ValueError, match=r"found 2 keys for 3 sets"):
        sets.to_frame(keys=["mon", "tue"])
    with pytest.raises(ValueError, match=r"these elements have shape \(2, 2\)"):
        Sets.from_list([torch.zeros(1, 2, 2)]).to_frame()


@pytest.mark.parametrize(
    "column",
    [
        pd.array([1, None, 2], dtype="Int64"),
        pd.array(["a", None, "b"], dtype="string"),
        np.array([1.0, np.nan, 2.0]),
        np.array(["2020-01-01", "NaT", "2020-01-02"], dtype="datetime64[D]"),
        np.array([0, None, ""], dtype=object),
    ],
    ids=["Int64", "string", "float", "date", "object"],
)
def test_missing_values_are_found_in_columns_of_any_kind(column):
    assert is_missing(np.asarray(column)).tolist() == [False, True, False]


def test_grouping_no_rows_gives_no_groups():
    rows, offsets = group_rows([np.zeros(0)], ["g"])
    assert (rows.tolist(), offsets.tolist()) == ([], [0])


# ------------------------------------------------------------------------------------- tables of other libraries

TABLE = {"g": ["b", "a", "b"], "x": [1.0, 2.0, 3.0]}


def test_an_arrow_table_is_read():
    pa = pytest.importorskip("pyarrow")
    assert [x.flatten().tolist() for x in Sets.from_frame(pa.table(TABLE), by="g")] == [[1, 3], [2]]


def test_a_duckdb_relation_is_read():
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.sql("select * from (values ('b', 1.0), ('a', 2.0), ('b', 3.0)) t(g, x)")
    assert [x.flatten().tolist() for x in Sets.from_frame(relation, by="g")] == [[1, 3], [2]]


def test_a_hugging_face_data_set_is_read():
    datasets = pytest.importorskip("datasets")
    assert [x.flatten().tolist() for x in Sets.from_frame(datasets.Dataset.from_dict(TABLE), by="g")] == [[1, 3], [2]]


def test_a_list_is_not_a_table():
    with pytest.raises(ValueError, match=r"expected a table with named columns, found list"):
        Sets.from_frame([[1.0]], by="g")
