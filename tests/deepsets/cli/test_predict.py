"""`deepsets predict` and `explain`: those of the loaded model, in bounded memory, or an error and the old output."""

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import deepsets
from deepsets.cli import app
from deepsets.io import reader
from deepsets.io.files import File

from .commands import SIZES, fit, frame, pd, run


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".feather", ".jsonl", ".npz"])
def test_predictions_are_those_of_the_loaded_model(suffix, models, table, tmp_path):
    out = tmp_path / f"out{suffix}"
    output = json.loads(run("predict", models / "tall", table, "-o", out, "--json"))
    assert (output["sets"], output["members"]) == (len(SIZES), SIZES.sum())
    found = File(out).read(["box", "prediction", "probability_0", "probability_1"]).to_pandas()
    wanted = deepsets.load(models / "tall").predict_proba(frame())
    np.testing.assert_allclose(found[["probability_0", "probability_1"]], wanted, rtol=1e-6)
    assert found["prediction"].tolist() == wanted.argmax(1).tolist()
    assert found["box"].tolist() == [f"s{i}" for i in range(len(SIZES))]


@pytest.mark.parametrize("name", ["top", "tall", "sum", "sign", "odd", "z", "word", "mixed"])
def test_streaming_gives_the_same_as_all_at_once(name, models, table, tmp_path, monkeypatch):
    run("predict", models / name, table, "-o", tmp_path / "whole.parquet")
    monkeypatch.setattr(reader, "MEMBERS", 9)
    original = File.batches
    monkeypatch.setattr(File, "batches", lambda self, columns, rows: original(self, columns, 7))
    run("predict", models / name, table, "-o", tmp_path / "parts.parquet")
    whole, parts = (pd.read_parquet(tmp_path / f"{n}.parquet") for n in ("whole", "parts"))
    pd.testing.assert_frame_equal(whole, parts, rtol=1e-5, atol=1e-6)
    assert len(whole) == (SIZES.sum() if name in ("sum", "sign") else len(SIZES))


def test_members_are_predicted_in_the_order_of_the_rows(models, table, tmp_path):
    run("predict", models / "sum", table, "-o", tmp_path / "out.csv")
    found = pd.read_csv(tmp_path / "out.csv")
    assert found["box"].tolist() == frame()["box"].tolist()
    assert found["member"].tolist() == frame().groupby("box").cumcount().tolist()
    np.testing.assert_allclose(found["prediction"], deepsets.load(models / "sum").predict(frame()), rtol=1e-5)


def test_booleans_text_and_dates_of_csv_files_are_predicted_as_from_parquet(models, table, tmp_path):
    frame().to_csv(tmp_path / "t.csv", index=False)
    run("predict", models / "mixed", tmp_path / "t.csv", "-o", tmp_path / "csv.parquet")
    run("predict", models / "mixed", table, "-o", tmp_path / "parquet.parquet")
    found, wanted = (pd.read_parquet(tmp_path / f"{n}.parquet") for n in ("csv", "parquet"))
    pd.testing.assert_frame_equal(found, wanted, rtol=1e-6)


def test_text_that_looks_like_numbers_stays_text(tmp_path):
    frame().assign(word=[f"{i % 4}" if i > 5 else "x" for i in range(SIZES.sum())]).to_csv(
        tmp_path / "t.csv", index=False
    )
    fit(tmp_path / "t.csv", "size", tmp_path / "model", features="word")
    frame().assign(word=[f"{i % 4}" for i in range(SIZES.sum())]).to_csv(tmp_path / "n.csv", index=False)
    output = run("predict", tmp_path / "model", tmp_path / "n.csv", "-o", tmp_path / "out.csv")
    assert "Predicted" in output
    known = deepsets.load(tmp_path / "model")
    tokens = frame().assign(word=[f"{i % 4}" for i in range(SIZES.sum())]).groupby("box", sort=False)["word"].agg(list)
    np.testing.assert_allclose(
        pd.read_csv(tmp_path / "out.csv")["probability_large"], known.predict_proba(tokens.tolist())[:, 0], rtol=1e-6
    )


@pytest.mark.filterwarnings("default")
def test_unseen_words_are_one_note_not_a_failure(models, tmp_path, monkeypatch):
    frame().assign(word="kiwi").to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setattr(reader, "MEMBERS", 9)
    original = File.batches
    monkeypatch.setattr(File, "batches", lambda self, columns, rows: original(self, columns, 7))
    command = ["predict", str(models / "word"), str(tmp_path / "t.csv"), "-o", str(tmp_path / "out.csv")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0
    assert done.stderr.count("Note: ") == 1
    assert f"{SIZES.sum()} of {SIZES.sum()} values in 'word', for example 'kiwi'" in done.stderr


def test_the_order_of_columns_and_unseen_columns_do_not_matter(models, table, tmp_path):
    frame()[["b", "word", "a", "box"]].assign(new="x").to_csv(tmp_path / "other.csv", index=False)
    run("predict", models / "top", tmp_path / "other.csv", "-o", tmp_path / "other.parquet")
    run("predict", models / "top", table, "-o", tmp_path / "out.parquet")
    found = [pd.read_parquet(tmp_path / f"{n}.parquet")["prediction"] for n in ("other", "out")]
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_models_fitted_in_python_can_be_used(tmp_path):
    sets = deepsets.Sets.from_frame(frame(), by="box", columns=["a", "b"])
    model = deepsets.estimators.SetRegressor(model="linear", random_state=0).fit(sets, np.arange(len(SIZES)))
    deepsets.save(model, tmp_path / "model")
    frame()[["box", "a", "b"]].to_csv(tmp_path / "t.csv", index=False)
    run("predict", tmp_path / "model", tmp_path / "t.csv", "--by", "box", "-o", tmp_path / "out.csv")
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")["prediction"], model.predict(sets), rtol=1e-5)
    assert "give --target" in run("evaluate", tmp_path / "model", tmp_path / "t.csv", "--by", "box", code=1)


@pytest.mark.parametrize(
    ("model", "change", "match"),
    [
        ("top", {"columns": {"b": "c"}}, "the table has no column 'b'; it has: box, a, c"),
        ("top", {"columns": {"box": "c"}}, "the table has no column 'box'"),
        ("z", {"columns": {"k": "c"}}, "the table has no column 'k'"),
    ],
)
def test_tables_that_do_not_fit_the_model_are_errors(model, change, match, models, tmp_path):
    frame().rename(**change).to_csv(tmp_path / "t.csv", index=False)
    output = run("predict", models / model, tmp_path / "t.csv", "-o", tmp_path / "out.csv", code=1)
    assert match in output
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv"]


def test_a_failure_in_the_middle_of_a_stream_leaves_the_old_output(models, tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "MEMBERS", 5)
    broken = frame()
    broken.loc[len(broken) - 1, "a"] = np.inf
    broken.to_parquet(tmp_path / "t.parquet", row_group_size=5)
    (tmp_path / "out.csv").write_text("old")
    run("predict", models / "top", tmp_path / "t.parquet", "-o", tmp_path / "out.csv", "--overwrite", code=1)
    assert (tmp_path / "out.csv").read_text() == "old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out.csv", "t.parquet"]


def test_rows_of_a_set_that_are_not_adjacent_are_an_error(models, tmp_path):
    frame().sort_values("a").to_csv(tmp_path / "t.csv", index=False)
    output = run("predict", models / "top", tmp_path / "t.csv", "-o", tmp_path / "out.csv", code=1)
    assert "Sort the table by 'box'" in output


def test_outputs_that_exist_are_refused_before_any_work(models, table, tmp_path):
    (tmp_path / "out.csv").write_text("mine")
    output = run("predict", models / "top", tmp_path / "nowhere.csv", "-o", tmp_path / "out.csv", code=1)
    assert "out.csv exists: choose another path, or --overwrite" in output
    assert "exists" in run("explain", models / "top", table, "-o", tmp_path / "out.csv", code=1)
    assert "exists" in run("export", models / "top", "-o", tmp_path / "out.csv", code=1)
    assert "exists" in fit(tmp_path / "nowhere.csv", "top", models / "top", code=1)
    assert (tmp_path / "out.csv").read_text() == "mine"
    run("predict", models / "top", table, "-o", tmp_path / "out.csv", "--overwrite")
    assert len(pd.read_csv(tmp_path / "out.csv")) == len(SIZES)
    for command in (["predict", models / "top", table], ["export", models / "top"]):
        assert "lost does not exist" in run(*command, "-o", tmp_path / "lost" / "x.csv", code=1)
    assert "lost does not exist" in fit(table, "top", tmp_path / "lost" / "model", code=1)
    assert "unsupported file extension" in run("predict", models / "top", table, "-o", tmp_path / "out.xls", code=1)


def test_the_input_is_never_replaced_by_the_output(models, tmp_path):
    frame().to_parquet(tmp_path / "t.parquet")
    before = (tmp_path / "t.parquet").read_bytes()
    for command, *options in (["predict"], ["predict", "--scattered"], ["pool"], ["explain"]):
        same = (tmp_path / "t.parquet", "-o", tmp_path / "t.parquet")
        output = run(command, models / "top", *same, "--overwrite", *options, code=1)
        assert "t.parquet is the input" in output
    assert (tmp_path / "t.parquet").read_bytes() == before


def test_a_second_run_into_the_same_output_is_refused(models, table, tmp_path):
    from deepsets.files import locked

    with locked(tmp_path / "out.csv"):
        output = run("predict", models / "top", table, "-o", tmp_path / "out.csv", code=1)
    assert "out.csv is being written by another process" in output


@pytest.mark.slow
def test_one_file_is_predicted_without_the_distributed_code(models, table, tmp_path):
    code = (
        "import sys; from deepsets.cli import app\n"
        f"try: app(['predict', {str(models / 'top')!r}, {str(table)!r}, '-o', {str(tmp_path / 'out.csv')!r}])\n"
        "except SystemExit as done: assert not done.code\n"
        "assert not [name for name in sys.modules if name.startswith('deepsets.distributed')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_explain_writes_what_each_member_contributes(models, table, tmp_path):
    run("explain", models / "top", table, "-o", tmp_path / "top.parquet")
    run("explain", models / "tall", table, "-o", tmp_path / "tall.parquet")
    found = pd.read_parquet(tmp_path / "top.parquet")
    wanted = np.asarray(deepsets.load(models / "top").explain(frame())).reshape(len(found), -1)
    np.testing.assert_allclose(found["contribution"], wanted[:, 0], rtol=1e-4, atol=1e-5)
    columns = ["box", "member", "contribution_0", "contribution_1"]
    assert pd.read_parquet(tmp_path / "tall.parquet").columns.tolist() == columns
    output = run("explain", models / "sum", table, "-o", tmp_path / "x.csv", code=1)
    assert "explain needs a model with one prediction per set" in output
