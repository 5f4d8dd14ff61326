"""Table files: every format, wrong files, wrong types."""

import sys

import numpy as np
import pytest

from deepsets.io import TableError
from deepsets.io.files import File
from deepsets.io.reader import stream

from .tables import LONG, SUFFIXES, opened, pa, same, whole, write


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_gives_the_same_sets(suffix, tmp_path):
    sets = whole(write(LONG, tmp_path / f"table{suffix}"), z=["k"])
    same(sets)
    assert sets.ids.to_pylist() == [f"s{i}" for i in range(8)]
    assert sets.z.tolist() == [[i] for i in range(8)]


def test_unknown_and_missing_files_are_errors(tmp_path):
    with pytest.raises(ValueError, match=r"has an unsupported file extension: use one of \.parquet, .*\.npz"):
        File(tmp_path / "table.xlsx")
    with pytest.raises(ValueError, match=r"t\.csv does not exist"):
        File(tmp_path / "t.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ValueError, match=r"folder\.csv is not a file"):
        File(tmp_path / "folder.csv")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".npz", ".csv", ".jsonl"])
@pytest.mark.parametrize("content", [b"", b"\x00\x01 no table \xff"])
def test_files_that_are_something_else_are_errors(suffix, content, tmp_path):
    path = tmp_path / f"table{suffix}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"table\.\w+ (cannot be read|has no rows)|the table has no column 'box'"):
        whole(path, features=["a"])


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    path = write(LONG, tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"needs pyarrow: pip install 'deepsets\[data\]'"):
        File(path)


def test_list_offsets_of_arrow_files_are_validated(tmp_path):
    lists = pa.ListArray.from_arrays(pa.array([0, 5, 10**8, 20], pa.int32()), pa.array(np.zeros(20)))
    with pa.ipc.new_file(tmp_path / "t.arrow", pa.schema([("x", lists.type)])) as file:
        file.write_batch(pa.RecordBatch.from_arrays([lists], ["x"]))
    file = File(tmp_path / "t.arrow")
    for use in (lambda: file.read(["x"]), lambda: list(file.batches(["x"], 64)), lambda: file.head(["x"])):
        with pytest.raises(TableError, match=r"t\.arrow cannot be read: .*[Oo]ffset"):
            use()


def test_deeply_nested_json_is_an_error_and_brackets_in_text_are_not(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    with pytest.raises(TableError, match=r"line 1 nests more than 32 levels"):
        File(path)
    path.write_text('{"box": "' + "[" * 1000 + '\\"", "a": [[1.0]]}\n')
    assert whole(path, features=["a_0"]).X.values.tolist() == [[1.0]]


@pytest.mark.parametrize("identifier", ["9223372036854775808", "18446744073709551616", "007"])
def test_identifiers_of_csv_files_stay_distinct(identifier, tmp_path):
    other = str(int(identifier) + 1) if int(identifier) > 7 else "7"
    (tmp_path / "t.csv").write_text(f"box,a\n{identifier},1\n{other},2\n")
    sets = whole(tmp_path / "t.csv")
    assert sets.ids.to_pylist() == [identifier, other]
    assert [part.ids.to_pylist() for part in stream(*opened(tmp_path / "t.csv"))] == [[identifier, other]]


def test_identifiers_of_csv_files_are_integers_if_all_are(tmp_path):
    (tmp_path / "t.csv").write_text("box,a\n9223372036854775807,1\n-3,2\n")
    assert whole(tmp_path / "t.csv").ids.to_pylist() == [9223372036854775807, -3]


def test_identifiers_that_turn_into_text_later_are_an_error_in_a_stream_only(tmp_path):
    (tmp_path / "t.csv").write_text("box,a\n" + "".join(f"{i:07d},1\n".lstrip("0") for i in range(1, 9)) + "x9,2\n")
    parts = opened(tmp_path / "t.csv")
    with pytest.raises(TableError, match="begins with integers, but has other text later"):
        for _ in parts[0].batches(["box"], 4):
            pass
    assert whole(tmp_path / "t.csv").ids.to_pylist()[-1] == "x9"


def test_identifiers_that_are_floats_are_an_error_unless_they_are_whole_numbers(tmp_path):
    path = write(pa.table({"box": [1.0, 2.0, 2.0], "a": [1.0, 2.0, 3.0]}), tmp_path / "t.parquet")
    assert whole(path).ids.to_pylist() == [1, 2]
    for bad in (0.5, 2.0**53, float("nan")):
        write(pa.table({"box": [1.0, bad], "a": [1.0, 2.0]}), path)
        with pytest.raises(TableError, match=r"set column 'box' holds floats such as .* \(row 1\)"):
            whole(path)
    (tmp_path / "t.jsonl").write_text('{"box": 9223372036854775808, "a": 1}\n{"box": 9223372036854775809, "a": 2}\n')
    with pytest.raises(TableError, match="set column 'box' holds floats"):
        whole(tmp_path / "t.jsonl")


@pytest.mark.parametrize("kind", ["string_view", "dictionary", "run_end_encoded"])
def test_encoded_columns_are_decoded(kind, tmp_path):
    plain = pa.array(["u", "u", "v"])
    column = {
        "string_view": lambda: plain.cast(pa.string_view()),
        "dictionary": plain.dictionary_encode,
        "run_end_encoded": lambda: pa.compute.run_end_encode(plain),
    }[kind]()
    table = pa.table({"box": column, "a": [1.0, 2.0, 3.0]})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as file:
        file.write_table(table)
    assert whole(tmp_path / "t.arrow").ids.to_pylist() == ["u", "v"]


@pytest.mark.parametrize(
    "values",
    [[{"k": 1}, {"k": 2}], [b"x", b"y"], [[["x"]], [["y"]]], [[[[1.0]]], [[[2.0]]]]],
    ids=["struct", "binary", "vectors of text", "matrices"],
)
def test_unsupported_columns_are_named_if_they_are_used(values, tmp_path):
    path = write(pa.table({"box": ["u", "v"], "a": [1.0, 2.0], "s": values}), tmp_path / "t.parquet")
    with pytest.raises(TableError, match=r"column 's' holds .*, which is not supported"):
        whole(path)
    with pytest.raises(TableError, match=r"column 's' holds .*, which is not supported"):
        whole(path, features=["a", "s"])
    assert len(whole(path, features=["a"])) == 2


def test_list_views_are_refused_because_arrow_converts_them_wrongly(tmp_path):
    table = pa.table({"box": [1, 2], "a": pa.array([[1.0, 2.0], [3.0]], pa.list_view(pa.float64()))})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as file:
        file.write_table(table)
    with pytest.raises(TableError, match=r"column 'a' holds list_view.*, which is not supported"):
        whole(tmp_path / "t.arrow")


def test_several_columns_of_one_name_are_an_error(tmp_path):
    (tmp_path / "t.csv").write_text("box,a,a\nu,1,2\n")
    with pytest.raises(TableError, match=r"several columns 'a'|cannot be read"):
        whole(tmp_path / "t.csv")
