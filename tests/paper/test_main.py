"""The command line: python -m paper."""

import json

import pytest
from typer.testing import CliRunner

import paper
from paper import load_methods
from paper.__main__ import app
from paper.experiment import isolated

METHOD = """
import paper


@paper.add_method("toy", "Mine")
def mine(trial, part):
    return paper.Outcome([paper.Measure(f"M={part}", "accuracy", 0.8)])
"""


def test_the_commands(results):
    run = CliRunner().invoke(app, ["report", "--results", str(results), "--json"])
    rows = json.loads(run.stdout)
    wanted = "experiment data method metric value std seeds paper protocol reductions seconds by_seed".split()
    assert len(rows) == 8 and list(rows[0]) == wanted
    listed = CliRunner().invoke(app, ["list"])
    assert listed.exit_code == 0 and "toy" in listed.stdout
    again = CliRunner().invoke(app, ["run", "toy", "--method", "LSTM", "--seed", "0", "--results", str(results)])
    assert "already done" in again.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nothing"], "there is no experiment 'nothing': the paper has toy"),
        (["run", "toy", "--method", "GRU"], "toy has no method 'GRU': it has Deep Sets, LSTM, Falls"),
        (["report"], "there are no results in"),
    ],
)
def test_user_errors_end_with_a_sentence(tmp_path, toy, arguments, message):
    run = CliRunner().invoke(app, [*arguments, "--results", str(tmp_path)])
    assert run.exit_code == 1 and message in " ".join(run.output.split())


def test_a_method_from_a_file_is_a_row_beside_the_others(results, tmp_path):
    with isolated():
        (tmp_path / "mine.py").write_text(METHOD)
        arguments = ["--method-file", str(tmp_path / "mine.py"), "--results", str(results)]
        run = CliRunner().invoke(app, ["run", "toy", "--method", "Mine", *arguments])
        assert run.exit_code == 0, run.output
        rows = json.loads(CliRunner().invoke(app, ["report", "--results", str(results), "--json"]).stdout)
        assert ("Mine", 0.8) in {(row["method"], row["value"]) for row in rows}
        text, _ = paper.write_report(results)
        assert "| Deep Sets | LSTM | Mine |" in text.read_text()
        with pytest.raises(ValueError, match="toy already has a method 'Mine'"):
            load_methods(tmp_path / "mine.py")
        (tmp_path / "none.py").write_text("x = 1")
        with pytest.raises(ValueError, match=r"none\.py adds no method: decorate a function"):
            load_methods(tmp_path / "none.py")
    text, _ = paper.write_report(results)  # the row stays, without the file
    assert "| Deep Sets | LSTM | Mine |" in text.read_text()


def test_settings_on_the_command_line(results):
    arguments = ["run", "toy", "--method", "LSTM", "--seed", "0", "--results", str(results), "--set"]
    assert CliRunner().invoke(app, [*arguments, "gain=0.7"]).exit_code == 0
    assert (results / "toy-quick" / "lstm-gain-0-7-0.json").exists()
    wrong = CliRunner().invoke(app, [*arguments, "gain"])
    assert wrong.exit_code == 1 and "--set gain is not of the form KEY=VALUE" in " ".join(wrong.output.split())
