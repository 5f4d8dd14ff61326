"""`deepsets evaluate`: scores beside baselines."""

import json
import re

import numpy as np
import pytest

import deepsets

from .commands import SIZES, frame, pd, run


@pytest.mark.parametrize("name", ["top", "tall", "sum", "sign", "odd", "z", "word", "mixed"])
def test_scores_are_those_of_the_estimator_beside_baselines(name, models, table):
    output = json.loads(run("evaluate", models / name, table, "--json"))
    model, data = deepsets.load(models / name), frame()
    methods = {row["method"]: row for row in output["methods"]}
    if name == "odd":
        assert methods["chance"]["accuracy"] == pytest.approx(np.mean(1 / SIZES))
        return
    assert {"boosting on summaries", "class shares" if hasattr(model, "classes_") else "mean"} < set(methods)
    if name in ("word", "mixed"):
        assert 0 <= output["accuracy"] <= 1
        return
    z = data.groupby("box", sort=False)["k"].first().to_numpy() if name == "z" else None
    y = data["top" if name == "z" else name]
    y = data.groupby("box", sort=False)[y.name].first() if name in ("top", "tall", "z") else y
    score = model.score(data, y.to_numpy(), z=z)
    assert output["accuracy" if hasattr(model, "classes_") else "r2"] == pytest.approx(score, abs=1e-5)


def test_the_baselines_are_what_they_say(models, table):
    output = json.loads(run("evaluate", models / "tall", table, "--json"))
    y = frame().groupby("box", sort=False)["tall"].first().to_numpy()
    shares = {row["method"]: row for row in output["methods"]}["class shares"]
    assert shares["accuracy"] == pytest.approx(max(y.mean(), 1 - y.mean()))
    assert shares["log_loss"] == pytest.approx(-(y.mean() * np.log(y.mean()) + (1 - y.mean()) * np.log(1 - y.mean())))
    assert (shares["balanced_accuracy"], shares["auc"]) == (0.5, 0.5)
    mean = json.loads(run("evaluate", models / "top", table, "--json"))["methods"][1]
    assert mean["r2"] == pytest.approx(0.0)


def test_only_labelled_members_count(models, tmp_path):
    some = frame()
    some.loc[some.index % 2 == 0, ["sum", "sign"]] = None
    some.to_parquet(tmp_path / "t.parquet")
    for name in ("sum", "sign"):
        output = json.loads(run("evaluate", models / name, tmp_path / "t.parquet", "--json"))
        assert output["labelled"] == int(some[name].notna().sum())


def test_unknown_labels_are_errors(models, tmp_path):
    frame().assign(sign="zero", tall="tall").to_csv(tmp_path / "t.csv", index=False)
    assert "the class 'zero' is new" in run("evaluate", models / "sign", tmp_path / "t.csv", code=1)
    assert "the targets are text such as 'tall'" in run("evaluate", models / "tall", tmp_path / "t.csv", code=1)


def test_the_report_has_scores_and_plots(models, table, tmp_path):
    run("evaluate", models / "tall", table, "--report", tmp_path / "classes.html")
    page = (tmp_path / "classes.html").read_text()
    assert "Confusion matrix" in page and "Calibration" in page and "boosting on summaries" in page
    cells = [int(cell) for cell in re.findall(r'">(\d+)</td>', page)]
    assert sum(cells) == len(SIZES)
    run("evaluate", models / "sum", table, "--report", tmp_path / "numbers.html")
    assert (tmp_path / "numbers.html").read_text().count("<circle") == SIZES.sum()


def test_expanders_are_evaluated_beside_popularity_and_item_item(tmp_path):
    rng = np.random.default_rng(0)
    rows = [(f"r{r}", f"i{10 * (r % 5) + item}") for r in range(200) for item in rng.choice(10, 4, replace=False)]
    sales = pd.DataFrame(rows, columns=["receipt", "item"])
    sales[:600].to_csv(tmp_path / "old.csv", index=False)
    sales[600:].to_csv(tmp_path / "new.csv", index=False)
    options = ["--by", "receipt", "--element", "item"]
    run("fit", tmp_path / "old.csv", "--task", "expansion", *options, "-o", tmp_path / "model")
    command = ["evaluate", tmp_path / "model", tmp_path / "new.csv", *options, "--train", tmp_path / "old.csv"]
    output = json.loads(run(*command, "-k", 10, "--json"))
    methods = {row["method"]: row for row in output["methods"]}
    assert set(methods) >= {"popularity", "item-item"}
    assert output["recall@10"] > 0.9 > methods["popularity"]["recall@10"]
    assert output["labelled"] == 50
    again = json.loads(run("evaluate", tmp_path / "model", tmp_path / "new.csv", "--json"))  # the columns of the fit
    assert {name: again[name] for name in ("recall@10", "labelled")} == {
        "recall@10": output["recall@10"],
        "labelled": 50,
    }
    message = run("fit", tmp_path / "old.csv", "--task", "expansion", "-o", tmp_path / "other", code=1)
    assert "looks like a table with the columns receipt, item" in message and "--by" in message
