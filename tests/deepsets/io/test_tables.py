"""Tables of every format, long and nested, whole and streamed, give the same sets."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsets import io as tables
from deepsets.io import File, read, shape_of, stream

pa = pytest.importorskip("pyarrow")
csv, feather, parquet = (pytest.importorskip(f"pyarrow.{name}") for name in ("csv", "feather", "parquet"))

RNG = np.random.default_rng(0)
SIZES = [3, 1, 7, 2, 2, 5, 1, 9]
IDS = np.repeat([f"s{i}" for i in range(len(SIZES))], SIZES)
A, B = RNG.normal(size=(2, len(IDS)))
LONG = pa.table({"box": IDS, "a": A, "b": B, "k": np.repeat(np.arange(len(SIZES)), SIZES)})
SUFFIXES = [".parquet", ".pq", ".csv", ".arrow", ".feather", ".ipc", ".jsonl", ".ndjson", ".npz"]


def write(table, path: Path) -> Path:
    kind = path.suffix
    if kind in (".parquet", ".pq"):
        parquet.write_table(table, path, row_group_size=4)
    elif kind == ".csv":
        csv.write_csv(table, path)
    elif kind in (".jsonl", ".ndjson"):
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    elif kind == ".npz":
        np.savez(path, **{n: np.array(table[n].to_pylist()) for n in table.column_names})
    else:
        feather.write_feather(table, path, compression="uncompressed", chunksize=4)
    return path


def opened(path: Path, by="box", features=None, z=(), target=(), numbers=None):
    file = File(path, numbers)
    shape = shape_of(file)
    return file, shape, shape.choose(by, features, list(z), list(target))


def whole(path: Path, **parts):
    return read(*opened(path, **parts))


def nested(**columns):
    """Lists of the rows of each set."""
    ends = np.cumsum(SIZES)[:-1]
    return pa.table({n: [part.tolist() for part in np.split(c, ends)] for n, c in columns.items()})


def same(sets, wanted=None) -> None:
    wanted = torch.from_numpy(np.stack([A, B], axis=1)).float() if wanted is None else wanted
    assert torch.equal(sets.X.values, wanted)
    assert sets.sizes.tolist() == SIZES
    assert sets.X.offsets.tolist() == [0, *np.cumsum(SIZES)]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_gives_the_same_sets(suffix, tmp_path):
    sets = whole(write(LONG, tmp_path / f"table{suffix}"), z=["k"])
    same(sets)
    assert sets.ids.to_pylist() == [f"s{i}" for i in range(8)]
    assert sets.z.tolist() == [[i] for i in range(8)]


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".jsonl"])
def test_a_list_column_for_each_feature_is_a_row_for_each_set(suffix, tmp_path):
    table = nested(a=A, b=B).append_column("name", [[f"s{i}" for i in range(8)]])
    same(whole(write(table, tmp_path / f"table{suffix}"), by="name"))
    numbered = whole(write(table, tmp_path / f"table{suffix}"), by=None)
    same(numbered)
    assert numbered.ids.to_pylist() == list(range(8))


def vectors(kind: str):
    """One column with both features."""
    flat = pa.array(np.stack([A, B], axis=1).reshape(-1))
    inner = pa.FixedSizeListArray.from_arrays(flat, 2) if kind == "fixed" else _pairs(flat)
    return pa.table({"x": pa.ListArray.from_arrays(pa.array([0, *np.cumsum(SIZES)], pa.int32()), inner)})


def _pairs(flat):
    return pa.ListArray.from_arrays(pa.array(np.arange(0, len(flat) + 1, 2), pa.int32()), flat)


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [("fixed", ".parquet"), ("fixed", ".feather"), ("lists", ".parquet"), ("lists", ".feather"), ("lists", ".jsonl")],
)
def test_one_column_of_lists_of_vectors_is_seen_as_its_entries(kind, suffix, tmp_path):
    parts = opened(write(vectors(kind), tmp_path / f"table{suffix}"), by=None)
    assert parts[2].features == ["x_0", "x_1"]
    same(read(*parts))
    swapped = whole(tmp_path / f"table{suffix}", by=None, features=["x_1", "x_0"])
    same(swapped, torch.from_numpy(np.stack([B, A], axis=1)).float())


def test_an_archive_of_arrays_may_have_offsets_and_vectors(tmp_path):
    x, y = np.stack([A, B], axis=1), np.arange(8)
    np.savez(tmp_path / "flat.npz", x=x, offsets=[0, *np.cumsum(SIZES)], y=y)
    sets = whole(tmp_path / "flat.npz", by=None, target=["y"])
    same(sets)
    assert sets.per_set
    assert sets.targets[0].to_pylist() == list(range(8))
    np.savez(tmp_path / "long.npz", x=x, box=IDS)
    same(whole(tmp_path / "long.npz"))


def test_rows_of_a_set_need_not_be_neighbours_when_all_is_read(tmp_path):
    order = RNG.permutation(len(LONG))
    sets = whole(write(LONG.take(order), tmp_path / "t.parquet"), features=["a"], target=["b"])
    for name, values in zip(sets.ids.to_pylist(), sets.X, strict=True):
        assert sorted(values[:, 0].tolist()) == sorted(A[name == IDS].astype(np.float32).tolist())
    assert [round(float(a), 5) for a in sets.X.values[:, 0]] == [
        round(float(A[B == b][0]), 5) for b in sets.targets[0].to_pylist()
    ]


def test_a_single_column_of_strings_is_tokens(tmp_path):
    table = pa.table({"box": IDS, "word": [f"w{i % 5}" for i in range(len(IDS))]})
    for suffix in (".parquet", ".csv"):
        sets = whole(write(table, tmp_path / f"t{suffix}"))
        assert [len(tokens) for tokens in sets.X] == SIZES
        assert sets.X[0] == ["w0", "w1", "w2"]


def test_categories_decimals_and_nulls_are_read(tmp_path):
    table = pa.table(
        {
            "box": pa.array(["u", "u", "v"]).dictionary_encode(),
            "a": pa.array([1, None, 3]),
            "b": pa.array([True, False, None]),
            "c": pa.array([1, 2, 3], pa.decimal128(5, 2)),
        }
    )
    parts = opened(write(table, tmp_path / "t.parquet"))
    for sets in (read(*parts), *stream(*parts)):
        assert sets.ids.to_pylist() == ["u", "v"]
        assert np.array_equal(sets.X.values, [[1, 1, 1], [np.nan, 0, 2], [3, np.nan, 3]], equal_nan=True)


# ------------------------------------------------------------------------------------------------------- streaming


def joined(parts):
    parts = list(parts)
    ids = [i for part in parts for i in part.ids.to_pylist()]
    return ids, torch.cat([p.X.values for p in parts]), np.concatenate([p.sizes for p in parts]), len(parts)


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
def test_a_set_that_comes_again_is_told(kind, members, tmp_path):
    names = np.array([0, 0, -1, -2, -2, 3, -1, 4])
    ids = {
        "strings": [str(n) for n in names],
        "integers": names,
        "floats": names / 2,
        "dates": (names + 100).astype("datetime64[D]"),
    }[kind]
    path = write(pa.table({"box": ids, "a": np.arange(8.0)}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"comes again in row 6 .* Sort it by 'box' first"):
        list(stream(*opened(path), members=members))


def test_a_stream_remembers_the_names_of_many_sets(tmp_path):
    ids = [*range(3000), 1234]
    path = write(pa.table({"box": ids, "a": np.zeros(3001)}), tmp_path / "t.parquet")
    parts = opened(path)
    parts[0].batches = lambda columns, rows: File.batches(parts[0], columns, 10)
    with pytest.raises(ValueError, match="the set 1234 comes again in row 3000"):
        list(stream(*parts, members=10))


def test_a_text_column_that_begins_with_integers_is_streamed_as_floats(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("box,a\n" + "u,1\n" * 3_000_000 + "v,1.5\n")
    parts = opened(path, features=["a"], numbers=["a"])
    *_, last = stream(*parts)
    assert last.X.values[-1].item() == 1.5


# ------------------------------------------------------------------------------------------------------- bad input


def test_unknown_and_missing_files_are_told(tmp_path):
    with pytest.raises(ValueError, match=r"its suffix must be one of \.parquet, .*\.npz"):
        File(tmp_path / "table.xlsx")
    with pytest.raises(ValueError, match=r"t\.csv does not exist"):
        File(tmp_path / "t.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ValueError, match=r"folder\.csv is not a file"):
        File(tmp_path / "folder.csv")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".npz", ".csv", ".jsonl"])
@pytest.mark.parametrize("content", [b"", b"\x00\x01 no table \xff"])
def test_files_that_are_something_else_are_told(suffix, content, tmp_path):
    path = tmp_path / f"table{suffix}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"table\.\w+ (cannot be read|has no rows)|the table has no column 'box'"):
        whole(path, features=["a"])


def test_an_archive_with_pickled_objects_is_refused(tmp_path):
    np.savez(tmp_path / "t.npz", box=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="cannot be read as NPZ with plain arrays"):
        File(tmp_path / "t.npz")
    np.savez(tmp_path / "t.npz", a=np.zeros(3), b=np.zeros(4))
    with pytest.raises(ValueError, match=r"need one length, found a 3, b 4"):
        File(tmp_path / "t.npz")


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".feather", ".npz"])
def test_tables_without_rows_are_told(suffix, tmp_path):
    path = write(LONG.slice(0, 0), tmp_path / f"t{suffix}")
    parts = opened(path)
    for way in (lambda: read(*parts), lambda: list(stream(*parts))):
        with pytest.raises(ValueError, match="has no rows, so there are no sets"):
            way()


def test_columns_that_are_not_there_or_play_two_parts_are_told(tmp_path):
    path = write(LONG, tmp_path / "t.parquet")
    for parts in ({"by": "bax"}, {"features": ["bax"]}, {"z": ["bax"]}, {"target": ["bax"]}):
        with pytest.raises(ValueError, match=r"no column 'bax'; it has: box, a, b, k"):
            opened(path, **parts)
    with pytest.raises(ValueError, match="say with --by which column names the set"):
        opened(path, by=None)
    with pytest.raises(ValueError, match="'a' cannot be a feature and"):
        opened(path, features=["a"], target=["a"])
    with pytest.raises(ValueError, match="no feature columns are left"):
        opened(path, z=["a", "b"], target=["k"])


def test_columns_with_the_wrong_content_are_told(tmp_path):
    path = write(LONG.append_column("word", [["x"] * len(IDS)]), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"'word' must hold numbers, but it holds string such as 'x'"):
        whole(path)
    with pytest.raises(ValueError, match=r"'a' must have one value for each set, but it changes within set 0"):
        whole(path, features=["b"], z=["a"])
    path = write(pa.table({"box": ["u", None], "a": [1.0, 2.0]}), tmp_path / "n.parquet")
    parts = opened(path)
    for way in (lambda: read(*parts), lambda: list(stream(*parts))):
        with pytest.raises(ValueError, match="row 1 has no value in the set column 'box'"):
            way()
    path = write(pa.table({"box": ["u", "u"], "w": ["x", None]}), tmp_path / "w.parquet")
    with pytest.raises(ValueError, match="member 1 has no token in column 'w'"):
        whole(path)


def test_nested_columns_with_the_wrong_content_are_told(tmp_path):
    def path(**columns):
        return write(pa.table(columns), tmp_path / "t.parquet")

    with pytest.raises(ValueError, match=r"lists of 'b' and 'a' differ in length"):
        whole(path(a=[[1.0], [2.0]], b=[[1.0, 2.0], []]), by=None)
    with pytest.raises(ValueError, match=r"row 1 of 'a' is null: an empty list is an empty set"):
        whole(path(a=[[1.0], None]), by=None)
    with pytest.raises(ValueError, match=r"members in column 'a' have 1 and 2 numbers"):
        whole(path(a=[[[1.0], [1.0, 2.0]]]), by=None)
    with pytest.raises(ValueError, match=r"'k' is not a list"):
        whole(path(a=[[1.0]], k=[1.0]), by=None, features=["a", "k"])
    with pytest.raises(ValueError, match=r"'a' is a list: one value for each set"):
        whole(path(a=[[1.0]], b=[[1.0]]), by="a")


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    path = write(LONG, tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"needs pyarrow: pip install 'deepsets\[data\]'"):
        File(path)


# --------------------------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_in_pieces_is_read_as_one_table(suffix, tmp_path):
    path = tmp_path / f"out{suffix}"
    with tables.writer(path) as put:
        put(LONG.slice(0, 5))
        put(LONG.slice(5))
        assert not path.exists()
    assert File(path).read(["box", "a"]).to_pydict() == LONG.select(["box", "a"]).to_pydict()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failure_leaves_the_old_output(suffix, tmp_path):
    path = tmp_path / f"out{suffix}"
    path.write_text("old")
    with pytest.raises(RuntimeError), tables.writer(path) as put:
        put(LONG)
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
