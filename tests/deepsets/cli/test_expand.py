"""`deepsets expand` and `deepsets fit --task expansion`: what they find, and what they refuse."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import deepsets
from deepsets.cli import app
from tests.deepsets.cli.commands import run

pytest.importorskip("pyarrow")

BASKETS = [["milk", "bread"], ["bread", "butter", "milk"], ["nails", "hammer"], ["hammer", "saw", "nails"]]


def answers(*args: object) -> list[str]:
    return [found["element"] for found in json.loads(run("expand", *args, "--json"))["answers"]]


def fit(table: Path, *args: object, code: int = 0) -> str:
    return run("fit", table, "--task", "expansion", "-o", table.parent / "model", *args, code=code)


@pytest.fixture
def baskets(tmp_path) -> Path:
    path = tmp_path / "baskets.txt"
    path.write_text("\n".join(",".join(basket) for basket in BASKETS))
    return path


# ----------------------------------------------------------------------------------------------------------- expand


def test_words_bring_more_like_them_in_a_table_with_bars():
    output = run("expand", "lion", "tiger", "leopard", "-k", 3)
    assert len(output.strip().splitlines()) == 3
    assert "panther" in output
    assert "█" * 20 in output.splitlines()[0]


def test_capitals_and_underscores_do_not_matter():
    assert answers("LION", "Grand_Piano") == answers("lion", "grand piano")
    assert answers("france", "italy") == answers("France", "ITALY", "france")


def test_excluded_words_are_not_found():
    first, *rest = answers("lion", "tiger", "-k", 4)
    assert answers("lion", "tiger", "-k", 3, "--exclude", first.upper()) == rest


def test_words_may_come_from_a_file(tmp_path):
    (tmp_path / "words.txt").write_text("tiger\n\ngrand piano\n")
    assert answers("lion", "--from", tmp_path / "words.txt") == answers("lion", "tiger", "grand piano")
    assert answers("--from", tmp_path / "words.txt") == answers("tiger", "grand piano")


def test_an_odd_member_is_named_only_where_it_is_clear():
    assert "hammer does not seem to belong" in run("expand", "lion", "tiger", "hammer", "leopard")
    found = json.loads(run("expand", "lion", "tiger", "hammer", "leopard", "--fits", "--json"))
    assert found["odd"] == "hammer"
    assert min(found["fits"], key=lambda m: m["fit"])["element"] == "hammer"
    for words in (["lion", "tiger", "leopard"], ["lion", "hammer"], ["lion", "hammer", "physics"], ["lion"]):
        assert json.loads(run("expand", *words, "--json"))["odd"] is None
    assert "How well each fits the others" in run("expand", "lion", "tiger", "--fits")


@pytest.mark.filterwarnings("default")
def test_unknown_words_are_skipped_with_a_note_and_suggestions():
    done = CliRunner().invoke(app, ["expand", "lion", "tigerr", "--json"])
    assert done.exit_code == 0
    assert "'tigerr' (did you mean tiger" in done.stderr
    assert json.loads(done.stdout)["query"] == ["lion"]
    done = CliRunner().invoke(app, ["expand", "tigerr"])
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].startswith("Error: ")


def test_usage_errors(tmp_path):
    assert "at least one word" in " ".join(run("expand", code=2).replace("│", "").split())
    assert "is none of blend" in run("expand", "lion", "--method", "magic", code=2)
    assert "a model folder has its own method" in run(
        "expand", "lion", "--method", "deep-sets", "--model", tmp_path, code=2
    )
    assert "does not exist" in run("expand", "lion", "--model", tmp_path / "none", code=1)
    run("expand", "lion", "-k", 0, code=2)


# -------------------------------------------------------------------------------------------------------------- fit


@pytest.mark.parametrize("method", ["blend", "bayesian-sets", "deep-sets", "latent-vectors"])
def test_a_model_of_baskets_is_fitted_and_asked(method, baskets):
    output = json.loads(fit(baskets, "--method", method, "--epochs", 1, "--json"))
    assert (output["sets"], output["members"], output["elements"]) == (4, 10, 6)
    assert output["sizes"] == {"min": 2, "median": 2.5, "max": 3}
    found = answers("--model", baskets.parent / "model", "milk", "-k", 2)
    assert len(found) == 2
    if method != "deep-sets":
        assert set(found) == {"bread", "butter"}


def test_all_shapes_of_tables_give_the_same_sets(baskets, tmp_path):
    pd = pytest.importorskip("pandas")
    long = pd.DataFrame([(b, item, 1.5) for b, basket in enumerate(BASKETS) for item in basket])
    long.columns = ["receipt", "item", "price"]
    long.to_csv(tmp_path / "long.csv", index=False)
    long[["receipt", "item"]].to_parquet(tmp_path / "two.parquet")
    pd.DataFrame({"items": BASKETS}).to_json(tmp_path / "nested.jsonl", orient="records", lines=True)
    (tmp_path / "lines.csv").write_text("\n".join(", ".join(f'"{item}"' for item in basket) for basket in BASKETS))
    (tmp_path / "blanks.txt").write_text("\n\n".join(" ".join(basket) for basket in BASKETS))
    expected = None
    for name, options in {
        "baskets.txt": [],
        "long.csv": ["--by", "receipt", "--element", "item"],
        "two.parquet": ["--by", "receipt"],
        "nested.jsonl": [],
        "lines.csv": [],
        "blanks.txt": [],
    }.items():
        fit(tmp_path / name, *options, "--overwrite")
        model = deepsets.load(tmp_path / "model")
        expected = expected or model.expand(["milk"])
        assert model.expand(["milk"]) == expected, name


def test_numbers_are_elements_like_words(tmp_path):
    (tmp_path / "ids.csv").write_text("who,film\n1,16777217\n1,5\n2,16777217\n2,5\n2,7\n3,8\n3,16777216\n")
    fit(tmp_path / "ids.csv", "--by", "who", "--element", "film")
    assert answers("--model", tmp_path / "model", 16777217, "-k", 2) == ["5", "7"]


def test_errors_of_tables_are_named(baskets, tmp_path):
    (tmp_path / "long.csv").write_text("who,film,stars\n1,a,3\n1,,4\n")
    assert "with --element: film, stars" in fit(tmp_path / "long.csv", "--by", "who", code=1)
    missing = fit(tmp_path / "long.csv", "--by", "who", "--element", "film", code=1)
    assert "column 'film' has missing elements" in missing
    (tmp_path / "empty.txt").write_text("\n\n")
    assert "no line with an element" in fit(tmp_path / "empty.txt", code=1)
    assert "does not exist" in fit(tmp_path / "none.txt", code=1)
    assert "is none of" in fit(baskets, "--method", "magic", code=2)
    assert "cannot be used with --task expansion" in fit(baskets, "--target", "x", code=2)
    assert "needs --task expansion" in run(
        "fit", baskets, "--target", "x", "--element", "y", "-o", tmp_path / "m", code=2
    )
    assert "--target" in run("fit", baskets, "-o", tmp_path / "m", code=2)
    fit(baskets)
    assert "exists" in fit(baskets, code=1)


def test_a_model_of_another_kind_is_refused(tmp_path):
    from deepsets.estimators import SetRegressor

    deepsets.save(SetRegressor(model="linear").fit([[[1.0], [2.0]], [[3.0]]], [3.0, 3.5]), tmp_path / "sums")
    assert "holds a SetRegressor: wanted a model of `fit --task expansion`" in run(
        "expand", "--model", tmp_path / "sums", "lion", code=1
    )


def test_a_word_of_nothing_is_refused():
    assert "no empty one" in " ".join(run("expand", "lion", " ", code=2).replace("│", "").split())
