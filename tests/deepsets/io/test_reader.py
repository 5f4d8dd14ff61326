"""Tables read whole and in batches give the same sets."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsets.io.files import File
from deepsets.io.reader import read, stream

from .tables import LONG, SIZES, SUFFIXES, A, B, joined, nested, opened, pa, parquet, write


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("members", [1, 4, 11, 1000])
def test_a_stream_gives_the_sets_of_the_whole_table(suffix, members, tmp_path):
    parts = opened(write(LONG, tmp_path / f"table{suffix}"), features=["a", "b"], numbers=["a", "b"])
    table = read(*parts)
    ids, values, sizes, _ = joined(stream(*parts, members=members))
    assert ids == table.ids.to_pylist()
    assert torch.equal(values, table.X.values)
    assert sizes.tolist() == table.sizes.tolist()


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=30), members=st.integers(1, 40), chunk=st.integers(1, 20))
def test_sets_are_never_cut_in_two(sizes, members, chunk, tmp_path_factory):
    path = tmp_path_factory.mktemp("cut") / "t.parquet"
    ids = np.repeat(np.arange(len(sizes))[::-1], sizes)
    parquet.write_table(pa.table({"box": ids, "a": np.arange(len(ids))}), path, row_group_size=chunk)
    parts = opened(path)
    parts[0].batches = lambda columns, rows: File.batches(parts[0], columns, chunk)
    found, values, each, count = joined(stream(*parts, members=members))
    assert found == list(range(len(sizes)))[::-1]
    assert each.tolist() == sizes
    assert values[:, 0].tolist() == list(range(len(ids)))
    assert 1 <= count <= len(sizes)


def test_nested_tables_are_streamed(tmp_path):
    parts = opened(write(nested(a=A, b=B), tmp_path / "t.parquet"), by=None)
    parts[0].batches = lambda columns, rows: File.batches(parts[0], columns, 1)
    ids, values, sizes, count = joined(stream(*parts, members=5))
    assert (ids, sizes.tolist(), count) == (list(range(8)), SIZES, 3)
    assert torch.equal(values, read(*parts).X.values)


@pytest.mark.parametrize("kind", ["strings", "integers", "floats", "dates"])
@pytest.mark.parametrize("members", [1, 2, 5, 100])
def test_a_set_that_occurs_again_is_an_error(kind, members, tmp_path):
    names = np.array([0, 0, -1, -2, -2, 3, -1, 4])
    ids = {
        "strings": [str(n) for n in names],
        "integers": names,
        "floats": names * 2.0,
        "dates": (names + 100).astype("datetime64[D]"),
    }[kind]
    path = write(pa.table({"box": ids, "a": np.arange(8.0)}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"occurs again in row 6 .* Sort the table by 'box'"):
        list(stream(*opened(path), members=members))


def test_a_stream_remembers_the_names_of_many_sets(tmp_path):
    ids = [*range(3000), 1234]
    path = write(pa.table({"box": ids, "a": np.zeros(3001)}), tmp_path / "t.parquet")
    parts = opened(path)
    parts[0].batches = lambda columns, rows: File.batches(parts[0], columns, 10)
    with pytest.raises(ValueError, match="set 1234 occurs again in row 3000"):
        list(stream(*parts, members=10))


def test_a_text_column_that_begins_with_integers_is_streamed_as_floats(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("box,a\n" + "u,1\n" * 3_000_000 + "v,1.5\n")
    parts = opened(path, features=["a"], numbers=["a"])
    *_, last = stream(*parts)
    assert last.X.values[-1].item() == 1.5


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".feather", ".npz"])
def test_tables_without_rows_are_errors(suffix, tmp_path):
    path = write(LONG.slice(0, 0), tmp_path / f"t{suffix}")
    parts = opened(path)
    for way in (lambda: read(*parts), lambda: list(stream(*parts))):
        with pytest.raises(ValueError, match="has no rows, so there are no sets"):
            way()
