"""`deepsets fit`: what it understands, learns and refuses."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import deepsets
from deepsets.cli import app
from deepsets.files import locked

from .commands import SIZES, fit, frame, pd, run


@pytest.mark.parametrize(
    ("target", "task"),
    [
        ("top", "set-regression"),
        ("tall", "set-classification"),
        ("size", "set-classification"),
        ("sum", "member-regression"),
        ("sign", "member-classification"),
        ("odd", "member-classification"),
    ],
)
def test_the_task_is_guessed_and_shown_with_the_schema(target, task, table, tmp_path):
    found = json.loads(fit(table, target, tmp_path / "model", "--json"))
    assert found["task"] == task
    assert (found["sets"], found["members"]) == (len(SIZES), SIZES.sum())
    assert found["sizes"] == {"min": SIZES.min(), "median": np.median(SIZES), "max": SIZES.max()}
    assert (found["features"], found["target"]) == (["a", "b"], [target])
    assert [row["role"] for row in found["columns"]] == ["set", "feature", "feature", "target"]
    assert (tmp_path / "model" / "model.safetensors").exists()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["model"]


def test_every_column_is_described_as_it_was_understood(table, tmp_path):
    data = frame()
    data.loc[:1, ["a", "word"]] = None
    data.to_csv(tmp_path / "t.csv", index=False)
    text = fit(tmp_path / "t.csv", "tall", tmp_path / "model", "--z-columns", "k", features="a,flag,word,day")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert any(line.startswith("a feature number") and line.endswith(" 2") for line in lines)
    assert f"flag feature boolean {data['flag'].sum()} true, {(~data['flag']).sum()} false 0" in lines
    assert any(line.startswith("word feature text 4 different: w") and line.endswith(" 2") for line in lines)
    assert any(line.startswith("day feature date or time 2020-") for line in lines)
    assert any(line.startswith("k z number") for line in lines)
    assert any(line.startswith("tall target number 0 to 1, 2 different") for line in lines)


def test_the_schema_is_shown_before_anything_can_fail(table, tmp_path):
    command = ["fit", str(table), "--by", "box", "--features", "a,b", "--target", "k", "--task", "odd-one-out"]
    result = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "model")])
    assert result.exit_code == 1
    assert "Columns" in result.stdout


def test_the_same_seed_gives_the_same_model(table, tmp_path):
    for name, seed in {"a": 3, "b": 3, "c": 4}.items():
        fit(table, "sum", tmp_path / name, "--seed", seed)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


def test_several_targets_are_learned_together(table, tmp_path):
    fit(table, "top,k", tmp_path / "model")
    run("predict", tmp_path / "model", table, "-o", tmp_path / "out.csv")
    assert pd.read_csv(tmp_path / "out.csv").columns.tolist() == ["box", "prediction_top", "prediction_k"]


def test_nested_tables_are_learned_like_long_ones(models, table, tmp_path):
    groups = frame().groupby("box", sort=False)
    nested = groups[["a", "b", "sum"]].agg(list).assign(top=groups["top"].first()).reset_index()
    nested.to_json(tmp_path / "nested.jsonl", orient="records", lines=True, double_precision=15)
    nested.to_parquet(tmp_path / "nested.parquet")
    path = tmp_path / "nested.parquet"
    run("fit", path, "--target", "top", "--features", "a,b", "--by", "box", "--model", "linear", "-o", tmp_path / "top")
    assert _weights(tmp_path / "top") == _weights(models / "top")
    for source in ("nested.parquet", "nested.jsonl"):
        for name in ("top", "sum"):
            run("predict", models / name, tmp_path / source, "-o", tmp_path / "n.parquet", "--overwrite")
            run("predict", models / name, table, "-o", tmp_path / "l.parquet", "--overwrite")
            found, wanted = (pd.read_parquet(tmp_path / f"{n}.parquet") for n in "nl")
            pd.testing.assert_frame_equal(found, wanted, rtol=1e-5)


def _weights(model: Path) -> bytes:
    return (model / "model.safetensors").read_bytes()


def test_rows_may_be_in_any_order_for_fitting(tmp_path):
    frame().sample(frac=1, random_state=0).to_csv(tmp_path / "mixed.csv", index=False)
    assert "set-regression" in fit(tmp_path / "mixed.csv", "top", tmp_path / "model")


def test_options_reach_the_estimator(table, tmp_path):
    fit(table, "tall", tmp_path / "model", "--model", "linear", "--class-weight", "balanced", "--device", "cpu")
    params = deepsets.load(tmp_path / "model").get_params()
    assert (params["model"], params["class_weight"], params["device"]) == ("linear", "balanced", "cpu")
    fit(table, "sum", tmp_path / "members", "--batch-size", 7, "--early-stopping")
    params = deepsets.load(tmp_path / "members").get_params()
    assert (params["batch_size"], params["width"], params["early_stopping"]) == (7, 8, True)


def test_options_that_a_task_does_not_have_are_usage_errors(table, tmp_path):
    assert "member-regression has no such option" in fit(
        table, "sum", tmp_path / "model", "--model", "linear", code=2
    ).replace("\n", " ")
    output = fit(table, "top", tmp_path / "model", "--task", "clustering", code=2)
    assert "'clustering' is not one of" in output and "'set-regression'" in output
    assert "Invalid value for '--epochs'" in fit(table, "top", tmp_path / "model", "--epochs", "0", code=2)
    assert not (tmp_path / "model").exists()


# ------------------------------------------------------------------------------------------------ interruptions


@pytest.mark.slow
def test_an_interrupted_fit_is_resumed_with_the_same_result(table, tmp_path):
    command = [sys.executable, "-m", "deepsets", "fit", str(table), "--by", "box", "--target", "sum", "--features"]
    command += ["a,b", "--epochs", "150", "--width", "8", "-o"]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    process = subprocess.Popen([*command, str(tmp_path / "cut")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    folder = tmp_path / "cut.checkpoint"
    deadline = time.monotonic() + 60
    while not (folder.is_dir() and any(folder.iterdir())) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("the fit was faster than the signal")
    assert process.returncode == 130
    assert f"The same command with --resume continues from {folder}" in errors.decode()
    subprocess.run([*command, str(tmp_path / "cut"), "--resume"], check=True, capture_output=True)
    assert _weights(tmp_path / "cut") == _weights(tmp_path / "whole")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["cut", "whole"]


def test_there_must_be_something_to_resume(table, tmp_path):
    assert "there is nothing to resume" in fit(table, "top", tmp_path / "model", "--resume", code=1)


def test_a_second_fit_into_the_same_folder_is_refused(table, tmp_path):
    with locked(tmp_path / "model.fit"):
        assert "is being written by another process" in fit(table, "top", tmp_path / "model", code=1)


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_noticed_before_training(table, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    output = fit(table, "top", tmp_path / "closed" / "model", code=1)
    assert "nothing can be written to the folder" in output


def test_a_full_disk_is_noticed_before_training(table, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr("deepsets.estimators.SetRegressor.fit", lambda *_: pytest.fail("trained"))
    assert "No space left on device" in fit(table, "top", tmp_path / "model", code=1)


# -------------------------------------------------------------------------------------------------------- refusals


def leaves_nothing(folder: Path) -> None:
    assert [entry.name for entry in folder.iterdir() if entry.suffix not in (".csv", ".parquet")] == []


@pytest.mark.parametrize(
    ("target", "more", "match"),
    [
        ("height", [], "the table has no column 'height'; it has: box, a, b"),
        ("same", [], "the target 'same' is constant, 1.5 everywhere: there is nothing to learn"),
        ("one", [], "the target 'one' is constant, 'x' everywhere"),
        ("none", [], "the target 'none' is missing in all rows"),
        ("day", ["--task", "member-classification", "--epochs", 1], "a model folder keeps strings, numbers"),
        ("gaps", ["--task", "set-regression"], "the target 'gaps' of set 's0' is missing: drop such sets"),
        (
            "sum",
            ["--task", "set-regression", "--model", "linear"],
            "must have one value per set, but it changes within",
        ),
        ("size", ["--task", "set-regression"], "'size' must hold numbers, but it holds"),
        ("a", [], "'a' cannot be a feature and"),
        ("top,size", ["--task", "set-classification"], "takes one target, found 2: top, size"),
        ("tall", ["--task", "odd-one-out"], "its odd one would be at position 9"),
        ("some", ["--task", "odd-one-out"], "marks 0 members of set"),
        ("top", ["--z-columns", "b", "--features", "a"], "'b' must have one value per set"),
        ("top", ["--features", "a,lost"], "the table has no column 'lost'"),
    ],
)
def test_targets_and_columns_that_cannot_be_used_are_errors(target, more, match, tmp_path):
    bad = frame().assign(same=1.5, one="x", none=np.nan)
    bad["gaps"] = bad["top"].where(bad["box"] != "s0")
    bad["some"] = bad["odd"] & (bad["box"] == "s1")
    bad.loc[bad["box"] == "s0", "tall"] = 9
    bad = bad[bad["box"].isin([name for name, n in zip(bad["box"].unique(), SIZES, strict=True) if n != 2])]
    bad.to_parquet(tmp_path / "t.parquet")
    command = ["fit", tmp_path / "t.parquet", "--by", "box", "--target", target, "-o", tmp_path / "model"]
    command += [] if "--features" in more else ["--features", "a,b"]
    output = run(*command, *more, code=1)
    assert match in output
    assert output.startswith("Error: ")
    assert "Traceback" not in output
    leaves_nothing(tmp_path)


def test_an_empty_table_and_a_single_set_are_errors(tmp_path):
    frame().iloc[:0].to_csv(tmp_path / "empty.csv", index=False)
    assert "has no rows" in fit(tmp_path / "empty.csv", "top", tmp_path / "model", code=1)
    frame().iloc[: SIZES[0]].to_csv(tmp_path / "one.csv", index=False)
    assert "the table holds a single set" in fit(tmp_path / "one.csv", "top", tmp_path / "model", code=1)
    leaves_nothing(tmp_path)


def test_missing_features_are_learned_and_infinite_ones_are_errors(tmp_path):
    holes = frame()
    holes.loc[3, "b"] = np.nan
    holes.to_csv(tmp_path / "t.csv", index=False)
    fit(tmp_path / "t.csv", "top", tmp_path / "model")
    run("predict", tmp_path / "model", tmp_path / "t.csv", "-o", tmp_path / "out.csv")
    assert pd.read_csv(tmp_path / "out.csv")["prediction"].notna().all()
    frame().assign(b=np.inf).to_parquet(tmp_path / "t.parquet")
    output = fit(tmp_path / "t.parquet", "top", tmp_path / "other", code=1)
    assert "the first is 'b' of set 's0', member 0, infinite: replace them" in output


def test_overwrite_replaces_a_model_and_nothing_else(table, tmp_path):
    fit(table, "top", tmp_path / "model")
    fit(table, "sum", tmp_path / "model", "--overwrite")
    assert type(deepsets.load(tmp_path / "model")).__name__ == "MemberRegressor"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert "it was not changed" in fit(table, "top", tmp_path / "mine", "--overwrite", code=1)
