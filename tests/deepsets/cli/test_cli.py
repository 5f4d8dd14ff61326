"""The command line: what it writes, what it says, and that it leaves nothing half-written."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import deepsets
from deepsets.cli import app
from deepsets.io import reader as _stream

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

RNG = np.random.default_rng(0)
SIZES = RNG.integers(1, 8, size=24)
PAGE = Path(__file__).parents[3] / "docs" / "command-line.md"


def frame() -> "pd.DataFrame":
    box = np.repeat([f"s{i}" for i in range(len(SIZES))], SIZES)
    rng = np.random.default_rng(1)
    out = pd.DataFrame({"box": box, "a": rng.normal(size=len(box)), "b": rng.normal(size=len(box))})
    out["k"] = np.repeat(rng.normal(size=len(SIZES)), SIZES)
    out["top"] = out.groupby("box")["a"].transform("max")
    out["tall"] = (out["top"] > 1).astype(int)
    out["size"] = np.repeat(np.where(SIZES > 4, "large", "small"), SIZES)
    out["sum"] = out["a"] + out["b"]
    out["sign"] = np.where(out["sum"] > 0, "plus", "minus")
    out["odd"] = out.groupby("box").cumcount() == 0
    out["word"] = [f"w{i % 4}" for i in range(len(box))]
    return out


def run(*args: object, code: int = 0) -> str:
    """Standard output of a command; for a failure what it says on standard error."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def fit(table: Path, target: str, model: Path, *more: object, features: str | None = "a,b", code: int = 0) -> str:
    chosen = ["--features", features] if features else []
    return run("fit", table, "--by", "box", "--target", target, *chosen, "--epochs", 1, "-o", model, *more, code=code)


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "table.parquet"
    frame().to_parquet(path)
    return path


@pytest.fixture(scope="module")
def models(table) -> Path:
    """One model of each kind."""
    for target in ("top", "tall", "sum", "sign"):
        fit(table, target, table.parent / target)
    fit(table, "odd", table.parent / "odd", "--task", "odd-one-out")
    fit(table, "top", table.parent / "z", "--z-columns", "k")
    fit(table, "size", table.parent / "word", features="word")
    return table.parent


# ------------------------------------------------------------------------------------------------------------- fit


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
    said = json.loads(fit(table, target, tmp_path / "model", "--json"))
    assert said["task"] == task
    assert said["sets"] == len(SIZES)
    assert said["members"] == SIZES.sum()
    assert said["sizes"] == {"min": SIZES.min(), "median": np.median(SIZES), "max": SIZES.max()}
    assert (said["features"], said["target"], said["epochs"]) == (["a", "b"], [target], 1)
    assert (tmp_path / "model" / "model.safetensors").exists()


def test_the_schema_is_shown_before_anything_can_fail(table, tmp_path):
    command = ["fit", str(table), "--by", "box", "--features", "a,b", "--target", "k", "--task", "odd-one-out"]
    result = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "model")])
    assert result.exit_code == 1
    assert "What is in the table" in result.stdout


def test_the_same_seed_gives_the_same_model(table, tmp_path):
    for name, seed in {"a": 3, "b": 3, "c": 4}.items():
        fit(table, "top", tmp_path / name, "--seed", seed)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


def test_several_targets_are_learnt_together(table, tmp_path):
    fit(table, "top,k", tmp_path / "model")
    run("predict", tmp_path / "model", table, "-o", tmp_path / "out.csv")
    assert pd.read_csv(tmp_path / "out.csv").columns.tolist() == ["box", "prediction_top", "prediction_k"]


def test_nested_tables_are_learnt_like_long_ones(models, table, tmp_path):
    groups = frame().groupby("box", sort=False)
    nested = groups[["a", "b", "sum"]].agg(list).assign(top=groups["top"].first()).reset_index()
    nested.to_json(tmp_path / "nested.jsonl", orient="records", lines=True, double_precision=15)
    nested.to_parquet(tmp_path / "nested.parquet")
    path = tmp_path / "nested.parquet"
    run("fit", path, "--target", "top", "--features", "a,b", "--by", "box", "--epochs", 1, "-o", tmp_path / "top")
    assert _weights(tmp_path / "top") == _weights(models / "top")
    run("fit", path, "--target", "sum", "--features", "a,b", "--epochs", 1, "-o", tmp_path / "sum")
    assert _weights(tmp_path / "sum") == _weights(models / "sum")
    for name in ("top", "sum"):
        for source in ("nested.parquet", "nested.jsonl"):
            run("predict", models / name, tmp_path / source, "-o", tmp_path / "n.parquet", "--overwrite")
            run("predict", models / name, table, "-o", tmp_path / "l.parquet", "--overwrite")
            pd.testing.assert_frame_equal(
                pd.read_parquet(tmp_path / "n.parquet"), pd.read_parquet(tmp_path / "l.parquet"), rtol=1e-5
            )


def _weights(model: Path) -> bytes:
    return (model / "model.safetensors").read_bytes()


def test_rows_may_be_in_any_order_for_fitting(table, tmp_path):
    mixed = frame().sample(frac=1, random_state=0)
    mixed.to_csv(tmp_path / "mixed.csv", index=False)
    assert "set-regression" in fit(tmp_path / "mixed.csv", "top", tmp_path / "model")


def test_a_class_seen_once_is_a_note_not_a_failure(tmp_path):
    rare = frame()
    rare.loc[rare["box"] == "s0", "size"] = "huge"
    rare.to_csv(tmp_path / "t.csv", index=False)
    command = [sys.executable, "-m", "deepsets", "fit", str(tmp_path / "t.csv"), "--by", "box", "--target", "size"]
    command += ["--features", "a,b", "--epochs", "1", "-o", str(tmp_path / "model")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stderr.strip() == "Note: the class 'huge' is seen once: a single example teaches little."


# --------------------------------------------------------------------------------------------------------- predict


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".feather", ".jsonl", ".npz"])
def test_predictions_are_those_of_the_loaded_model(suffix, models, table, tmp_path):
    out = tmp_path / f"out{suffix}"
    said = json.loads(run("predict", models / "tall", table, "-o", out, "--json"))
    assert (said["sets"], said["members"]) == (len(SIZES), SIZES.sum())
    found = deepsets.tables.File(out).read(["box", "prediction", "probability_0", "probability_1"]).to_pandas()
    wanted = deepsets.load(models / "tall").predict_proba(frame())
    np.testing.assert_allclose(found[["probability_0", "probability_1"]], wanted, rtol=1e-6)
    assert found["prediction"].tolist() == wanted.argmax(1).tolist()
    assert found["box"].tolist() == [f"s{i}" for i in range(len(SIZES))]


@pytest.mark.parametrize("name", ["top", "tall", "sum", "sign", "odd", "z", "word"])
def test_streaming_gives_the_same_as_all_at_once(name, models, table, tmp_path, monkeypatch):
    run("predict", models / name, table, "-o", tmp_path / "whole.parquet")
    monkeypatch.setattr(_stream.stream, "__defaults__", (9,))
    original = deepsets.tables.File.batches
    monkeypatch.setattr(deepsets.tables.File, "batches", lambda self, columns, rows: original(self, columns, 7))
    run("predict", models / name, table, "-o", tmp_path / "parts.parquet")
    whole, parts = (pd.read_parquet(tmp_path / f"{n}.parquet") for n in ("whole", "parts"))
    pd.testing.assert_frame_equal(whole, parts, rtol=1e-5, atol=1e-6)
    assert len(whole) == (SIZES.sum() if name in ("sum", "sign") else len(SIZES))


def test_members_are_answered_in_the_order_of_the_rows(models, table, tmp_path):
    run("predict", models / "sum", table, "-o", tmp_path / "out.csv")
    found = pd.read_csv(tmp_path / "out.csv")
    assert found["box"].tolist() == frame()["box"].tolist()
    assert found["member"].tolist() == frame().groupby("box").cumcount().tolist()
    np.testing.assert_allclose(found["prediction"], deepsets.load(models / "sum").predict(frame()), rtol=1e-5)


def test_the_order_of_columns_and_unseen_columns_do_not_matter(models, table, tmp_path):
    frame()[["b", "word", "a", "box"]].assign(new="x").to_csv(tmp_path / "other.csv", index=False)
    run("predict", models / "top", tmp_path / "other.csv", "-o", tmp_path / "other.parquet")
    run("predict", models / "top", table, "-o", tmp_path / "out.parquet")
    found = [pd.read_parquet(tmp_path / f"{n}.parquet")["prediction"] for n in ("other", "out")]
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_models_made_in_python_are_asked_too(table, tmp_path):
    sets = deepsets.Sets.from_frame(frame(), by="box", columns=["a", "b"])
    model = deepsets.estimators.SetRegressor(epochs=1, random_state=0).fit(sets, np.arange(len(SIZES)))
    deepsets.save(model, tmp_path / "model")
    frame()[["box", "a", "b"]].to_csv(tmp_path / "t.csv", index=False)
    run("predict", tmp_path / "model", tmp_path / "t.csv", "--by", "box", "-o", tmp_path / "out.csv")
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")["prediction"], model.predict(sets), rtol=1e-5)
    assert "give --target" in run("evaluate", tmp_path / "model", tmp_path / "t.csv", "--by", "box", code=1)


# ----------------------------------------------------------------------------------- evaluate, explain, and export


@pytest.mark.parametrize("name", ["top", "tall", "sum", "sign", "odd", "z", "word"])
def test_evaluate_gives_the_scores_of_the_estimator(name, models, table):
    said = json.loads(run("evaluate", models / name, table, "--json"))
    model, data = deepsets.load(models / name), frame()
    if name in ("word", "odd"):
        assert 0 <= said["accuracy"] <= 1
        return
    z = data.groupby("box", sort=False)["k"].first().to_numpy() if name == "z" else None
    score = model.score(data, data["top" if name == "z" else name].to_numpy(), z)
    assert said["accuracy" if hasattr(model, "classes_") else "r2"] == pytest.approx(score, abs=1e-5)


def test_only_labelled_members_count_in_evaluate(models, tmp_path):
    some = frame()
    some.loc[some.index % 2 == 0, ["sum", "sign"]] = None
    some.to_parquet(tmp_path / "t.parquet")
    for name in ("sum", "sign"):
        said = json.loads(run("evaluate", models / name, tmp_path / "t.parquet", "--json"))
        assert said["labelled"] == int(some[name].notna().sum())


def test_explain_writes_what_each_member_contributes(models, table, tmp_path):
    run("explain", models / "top", table, "-o", tmp_path / "top.parquet")
    run("explain", models / "tall", table, "-o", tmp_path / "tall.parquet")
    found = pd.read_parquet(tmp_path / "top.parquet")
    wanted = deepsets.load(models / "top").explain(frame())
    np.testing.assert_allclose(found["contribution"], wanted[:, 0], rtol=1e-4, atol=1e-5)
    assert pd.read_parquet(tmp_path / "tall.parquet").columns.tolist() == [
        "box",
        "member",
        "contribution_0",
        "contribution_1",
    ]
    assert "explain is for models of sets" in run("explain", models / "sum", table, "-o", tmp_path / "x.csv", code=1)


@pytest.mark.parametrize("name", ["tall", "z", "odd"])
def test_onnxruntime_gives_the_numbers_of_the_estimator(name, models, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    run("export", models / name, "-o", tmp_path / "model.onnx")
    model, data = deepsets.load(models / name), frame().iloc[: int(SIZES[:15].sum())]
    X = deepsets.Sets.from_frame(data, by="box", columns=["a", "b"])
    feed = {"values": data[["a", "b"]].to_numpy(np.float32), "offsets": np.concatenate([[0], np.cumsum(SIZES[:15])])}
    z = data.groupby("box", sort=False)[["k"]].first().to_numpy(np.float32) if name == "z" else None
    feed |= {} if z is None else {"z": z}
    answer = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(["answer"], feed)[0]
    wanted = model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X, z)
    wanted = np.concatenate(wanted) if isinstance(wanted, list) else wanted
    np.testing.assert_allclose(answer, wanted.reshape(answer.shape), rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------------- bad input


def leaves_nothing(folder: Path) -> None:
    assert [entry.name for entry in folder.iterdir() if entry.suffix not in (".csv", ".parquet")] == []


@pytest.mark.parametrize(
    ("target", "more", "match"),
    [
        ("height", [], "the table has no column 'height'; it has: box, a, b"),
        ("same", [], "the target 'same' is constant, 1.5 everywhere: nothing to learn"),
        ("one", [], "the target 'one' is constant, 'x' everywhere"),
        ("none", [], "the target 'none' is missing in all rows"),
        ("gaps", ["--task", "set-regression"], "the target 'gaps' of set 's0' is missing: drop such sets"),
        ("sum", ["--task", "set-regression"], "must be one for each set, but it changes within set 's"),
        ("size", ["--task", "set-regression"], "'size' must hold numbers, but it holds"),
        ("a", [], "'a' cannot be a feature and"),
        ("top,size", ["--task", "set-classification"], "takes one target, found 2: top, size"),
        ("tall", ["--task", "odd-one-out"], "its odd one would be at place 1"),
        ("some", ["--task", "odd-one-out"], "marks 0 members of set"),
        ("top", ["--z-columns", "b", "--features", "a"], "'b' must have one value for each set"),
        ("top", ["--features", "a,lost"], "the table has no column 'lost'"),
    ],
)
def test_targets_and_columns_that_cannot_be_used_are_told(target, more, match, tmp_path):
    bad = frame().assign(same=1.5, one="x", none=np.nan)
    bad["gaps"] = bad["top"].where(bad["box"] != "s0")
    bad["some"] = bad["odd"] & (bad["box"] == "s1")
    bad.loc[bad["box"] == "s0", "tall"] = 1
    bad = bad[bad["box"].isin([name for name, n in zip(bad["box"].unique(), SIZES, strict=True) if n != 2])]
    bad.to_parquet(tmp_path / "t.parquet")
    said = fit(tmp_path / "t.parquet", target, tmp_path / "model", *more, code=1)
    assert match in said
    assert said.startswith("Error: ")
    assert "Traceback" not in said
    leaves_nothing(tmp_path)


def test_strings_among_the_features_are_told(table, tmp_path):
    said = fit(table, "top", tmp_path / "model", features=None, code=1)
    assert "the column 'size' must hold numbers, but it holds" in said
    assert "leave it out of the features" in said


def test_an_empty_table_and_a_single_set_are_told(tmp_path):
    frame().iloc[:0].to_csv(tmp_path / "empty.csv", index=False)
    assert "has no rows" in fit(tmp_path / "empty.csv", "top", tmp_path / "model", code=1)
    frame().iloc[: SIZES[0]].to_csv(tmp_path / "one.csv", index=False)
    assert "the table holds one set only" in fit(tmp_path / "one.csv", "top", tmp_path / "model", code=1)
    leaves_nothing(tmp_path)


def with_holes(path: Path) -> Path:
    holes = frame()
    holes.loc[3, "b"] = np.nan
    holes.to_csv(path, index=False)
    return path


def test_missing_features_are_told_or_imputed(models, tmp_path):
    path = with_holes(tmp_path / "t.csv")
    where = r"1 features are missing or infinite, the first is 'b' of set 's\d', member \d+, missing: fill them in; "
    assert re.search(where + "--impute replaces them", fit(path, "top", tmp_path / "model", code=1))
    said = run("predict", models / "top", path, "-o", tmp_path / "out.csv", code=1)
    assert re.search(where + "a model fitted with --impute would", said)
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv"]
    fit(path, "top", tmp_path / "model", "--impute")
    run("predict", tmp_path / "model", path, "-o", tmp_path / "out.csv")
    assert pd.read_csv(tmp_path / "out.csv")["prediction"].notna().all()


def test_infinite_features_are_told_even_with_impute(tmp_path):
    frame().assign(b=np.inf).to_parquet(tmp_path / "t.parquet")
    assert "infinite: mend them" in fit(tmp_path / "t.parquet", "top", tmp_path / "model", "--impute", code=1)


@pytest.mark.parametrize(
    ("model", "change", "match"),
    [
        ("top", {"columns": {"b": "c"}}, "the table has no column 'b'; it has: box, a, c"),
        ("top", {"columns": {"box": "c"}}, "the table has no column 'box'"),
        ("z", {"columns": {"k": "c"}}, "the table has no column 'k'"),
        ("word", {"columns": {}}, "set 's0' holds 'kiwi', which is not among the 4 tokens the model knows"),
    ],
)
def test_tables_that_do_not_fit_the_model_are_told(model, change, match, models, tmp_path):
    frame().assign(word="kiwi").rename(**change).to_csv(tmp_path / "t.csv", index=False)
    said = run("predict", models / model, tmp_path / "t.csv", "-o", tmp_path / "out.csv", code=1)
    assert match in said
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv"]


def test_a_failure_in_the_middle_of_a_stream_leaves_the_old_output(models, tmp_path, monkeypatch):
    monkeypatch.setattr(_stream.stream, "__defaults__", (5,))
    broken = frame()
    broken.loc[len(broken) - 1, "a"] = np.nan
    broken.to_parquet(tmp_path / "t.parquet", row_group_size=5)
    (tmp_path / "out.csv").write_text("old")
    run("predict", models / "top", tmp_path / "t.parquet", "-o", tmp_path / "out.csv", "--overwrite", code=1)
    assert (tmp_path / "out.csv").read_text() == "old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out.csv", "t.parquet"]


def test_rows_of_a_set_that_are_no_neighbours_are_told(models, tmp_path):
    frame().sort_values("a").to_csv(tmp_path / "t.csv", index=False)
    said = run("predict", models / "top", tmp_path / "t.csv", "-o", tmp_path / "out.csv", code=1)
    assert "Sort it by 'box' first" in said


def test_unknown_labels_are_told_by_evaluate(models, tmp_path):
    frame().assign(sign="zero", tall="tall").to_csv(tmp_path / "t.csv", index=False)
    assert "the class 'zero' is new" in run("evaluate", models / "sign", tmp_path / "t.csv", code=1)
    assert "the targets are strings such as 'tall'" in run("evaluate", models / "tall", tmp_path / "t.csv", code=1)


def test_outputs_that_exist_are_refused_before_any_work(models, table, tmp_path):
    (tmp_path / "out.csv").write_text("mine")
    said = run("predict", models / "top", tmp_path / "nowhere.csv", "-o", tmp_path / "out.csv", code=1)
    assert "out.csv exists: choose another path, or --overwrite" in said
    assert "exists" in run("explain", models / "top", table, "-o", tmp_path / "out.csv", code=1)
    assert "exists" in run("export", models / "top", "-o", tmp_path / "out.csv", code=1)
    assert "exists" in fit(tmp_path / "nowhere.csv", "top", models / "top", code=1)
    assert (tmp_path / "out.csv").read_text() == "mine"
    run("predict", models / "top", table, "-o", tmp_path / "out.csv", "--overwrite")
    assert len(pd.read_csv(tmp_path / "out.csv")) == len(SIZES)
    for command in (["predict", models / "top", table], ["export", models / "top"]):
        assert "lost does not exist" in run(*command, "-o", tmp_path / "lost" / "x.csv", code=1)
    assert "lost does not exist" in fit(table, "top", tmp_path / "lost" / "model", code=1)
    assert "its suffix must be one of" in run("predict", models / "top", table, "-o", tmp_path / "out.xls", code=1)


def test_overwrite_replaces_a_model_and_nothing_else(table, tmp_path):
    fit(table, "top", tmp_path / "model")
    fit(table, "sum", tmp_path / "model", "--overwrite")
    assert type(deepsets.load(tmp_path / "model")).__name__ == "MemberRegressor"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert "it is left as it is" in fit(table, "top", tmp_path / "mine", "--overwrite", code=1)


def test_usage_errors_have_exit_code_2(table, tmp_path):
    assert "Missing option '-o' / '--output'" in run("fit", table, code=2)
    assert "Missing argument 'model'" in run("predict", code=2)
    assert "No such command 'nonsense'" in run("nonsense", code=2)
    said = fit(table, "top", tmp_path / "model", "--task", "clustering", code=2)
    assert "'clustering' is none of set-regression" in said
    assert "Invalid value for '--epochs'" in fit(table, "top", tmp_path / "model", "--epochs", "0", code=2)
    assert not (tmp_path / "model").exists()


def test_columns_that_nobody_named_are_shown_as_none(table, tmp_path):
    shown = [line.split() for line in fit(table, "top", tmp_path / "model").splitlines()]
    assert ["z", "–"] in shown and ["features", "a,", "b"] in shown


def test_a_folder_that_is_no_model_is_told(table, tmp_path):
    said = run("predict", tmp_path, table, "-o", tmp_path / "out.csv", code=1)
    assert "is not a model folder: it has no config.json" in said


def test_a_missing_extra_is_named(models, table, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    said = run("predict", models / "top", table, "-o", tmp_path / "out.csv", code=1)
    assert said == "Error: reading and writing tables needs pyarrow: pip install 'deepsets[data]'.\n"


# ------------------------------------------------------------------------------------------------ help and the page


@pytest.mark.parametrize("verb", ["fit", "predict", "evaluate", "explain", "export"])
def test_every_verb_shows_examples_that_parse(verb):
    text = run(verb, "--help")
    examples = re.findall(rf"deepsets {verb} [^\n]+", text)
    assert examples
    for example in examples:
        _, *args = shlex.split(example)
        assert not any(option not in text for option in args if option.startswith("--"))


def test_the_commands_of_the_page_run(tmp_path, monkeypatch):
    """Every `$ deepsets …` of docs/command-line.md, in order, on the table that the page describes."""
    monkeypatch.chdir(tmp_path)
    data = frame()
    table = pd.DataFrame({"cluster_id": data["box"], "u": data["a"], "g": data["b"], "z": data["sum"]})
    half = int(SIZES[:12].sum())
    table.iloc[:half].to_parquet("galaxies.parquet")
    table.iloc[half:].to_parquet("new.parquet")
    bags = data.rename(columns={"box": "bag", "tall": "active", "a": "f1", "b": "f2"})
    bags[["bag", "f1", "f2", "active"]].to_csv("bags.csv", index=False)
    commands = re.findall(r"^\$ deepsets (.+)$", PAGE.read_text(), re.MULTILINE)
    assert {command.split()[0] for command in commands} == {"fit", "predict", "evaluate", "explain", "export"}
    for command in commands:
        run(*shlex.split(command), *(["--epochs", "1"] if command.startswith("fit") else []))
