"""Running experiments: what is run, what is recorded, what is resumed."""

import json
import subprocess
from dataclasses import replace

import pytest
import torch

import paper
from paper import Measure, Outcome
from paper.experiments.digits_text import accuracy
from paper.runner import _commit

from .conftest import TOY, calls


def test_parts_with_a_result_are_not_run_again(results):
    assert len(calls) == 8
    lines = []
    paper.run("toy", results, methods=["Deep Sets", "LSTM"], seeds=[0, 1, 2], log=lines.append)
    assert len(calls) == 12
    assert sum("already done" in line for line in lines) == 8


def test_full_and_quick_runs_are_kept_apart(results):
    paper.run("toy", results, full=True, methods=["LSTM"], seeds=[0])
    assert {row.protocol for row in paper.rows(paper.records(results))} == {"quick", "full"}
    assert (results / "toy-full" / "lstm-0.json").exists()


def test_an_interrupted_run_keeps_its_finished_parts_and_its_checkpoint(tmp_path, toy):
    with pytest.raises(KeyboardInterrupt):
        paper.run("toy", tmp_path, methods=["Falls"], seeds=[0])
    assert list(paper.records(tmp_path)[0].parts) == ["5"]
    (record,) = paper.run("toy", tmp_path, methods=["Falls"], seeds=[0], resume=True)
    assert [(part, facts["resumed"]) for part, facts in record.parts.items()] == [("5", False), ("10", True)]
    assert not list((tmp_path / ".work").rglob("checkpoint"))


def test_without_resume_an_interrupted_part_starts_again(tmp_path, toy):
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            paper.run("toy", tmp_path, methods=["Falls"], seeds=[0])


def test_a_record_says_what_it_is(results):
    facts = json.loads((results / "toy-quick" / "deep-sets-1.json").read_text())
    assert facts["data"] == "made up" and facts["reductions"] == ["two numbers & no more"] and facts["seed"] == 1
    assert set(facts["versions"]) >= {"torch", "deepsets"}
    assert facts["parts"]["5"]["extra"] == {"part": "5"} and facts["parts"]["5"]["seconds"] >= 0


def test_rows_average_over_seeds_beside_the_paper(results):
    found = {(r.method, r.data, r.metric): r for r in paper.rows(paper.records(results))}
    row = found["Deep Sets", "M=5", "accuracy"]
    assert row.value == pytest.approx(0.55) and row.std == pytest.approx(0.1 / 2**0.5) and row.seeds == 2
    assert row.paper == 0.4 and row.protocol == "quick"


def test_a_part_that_does_not_apply_is_not_recorded_and_may_be_run_later(tmp_path, toy):
    asked, lines = {"5"}, []

    def some(trial, part):
        return Outcome([Measure(part, "accuracy", 1.0)] if part in asked else [])

    toy(replace(TOY, methods={"Some": some}))
    (first,) = paper.run("toy", tmp_path, seeds=[0], log=lines.append)
    assert list(first.parts) == ["5"] and "10: does not apply" in lines[-1]
    asked.add("10")
    (second,) = paper.run("toy", tmp_path, seeds=[0], log=lines.append)
    assert list(second.parts) == ["5", "10"] and "already done" in lines[-2]


def test_a_broken_record_is_named(tmp_path):
    (tmp_path / "toy-quick").mkdir()
    (tmp_path / "toy-quick" / "x-0.json").write_text('{"half":')
    with pytest.raises(ValueError, match=r"x-0\.json is not the record of a run"):
        paper.records(tmp_path)


def test_settings_make_a_row_of_their_own_and_are_recorded(results):
    paper.run("toy", results, methods=["LSTM"], seeds=[0], settings={"gain": 0.9})
    facts = json.loads((results / "toy-quick" / "lstm-gain-0-9-0.json").read_text())
    assert facts["method"] == "LSTM (gain=0.9)" and facts["parts"]["5"]["settings"] == {"gain": 0.9}
    assert facts["parts"]["5"]["threads"] >= 1 and "commit" in facts["parts"]["5"]
    assert facts["parts"]["5"]["processor"].startswith(torch.backends.cpu.get_cpu_capability())
    values = {
        (row.method, row.data): row.value for row in paper.rows(paper.records(results)) if row.metric == "accuracy"
    }
    assert values["LSTM (gain=0.9)", "M=5"] == 0.9 and values["LSTM", "M=5"] == pytest.approx(0.15)
    own = json.loads((results / "toy-quick" / "lstm-0.json").read_text())
    assert own["parts"]["5"]["settings"] == {"gain": 0.1}


def test_an_unknown_setting_is_an_error(tmp_path, toy):
    with pytest.raises(ValueError, match="this method has no setting 'gains': it has gain"):
        paper.run("toy", tmp_path, methods=["LSTM"], settings={"gains": 1})
    with pytest.raises(ValueError, match="Falls of toy has no setting 'gain'"):
        paper.run("toy", tmp_path, methods=["Falls"], parts=["5"], settings={"gain": 1})


def test_one_part_can_be_run_and_an_unknown_part_is_an_error(tmp_path, toy):
    (record,) = paper.run("toy", tmp_path, methods=["LSTM"], seeds=[0], parts=["10"])
    assert list(record.parts) == ["10"]
    with pytest.raises(ValueError, match="toy has no part '7' in this form: it has 5, 10"):
        paper.run("toy", tmp_path, parts=["7"])


def test_a_saved_network_is_loaded_with_the_score_of_its_record(tmp_path):
    (record,) = paper.run("digits-text", tmp_path, methods=["Deep Sets"], settings={"epochs": 1}, models=tmp_path / "m")
    (folder,) = (tmp_path / "m").iterdir()
    assert folder.name == "digits-text-quick-deep-sets-epochs-1-0"
    found = accuracy(paper.load_model(folder), 500, seed=0)
    assert [measure["value"] for measure in record.parts["all"]["measures"]] == list(found.values())
    config = json.loads((folder / "config.json").read_text())
    assert config["command"] == (
        'python -m paper run digits-text --quick --method "Deep Sets" --seed 0 --part "all" --set epochs=1 '
        "--models models"
    )
    assert config["command"] in (folder / "README.md").read_text() and config["settings"]["epochs"] == 1


def test_an_expander_is_saved_as_a_model_folder_of_the_library(tmp_path):
    paper.run("concepts", tmp_path, methods=["Bayes Set"], models=tmp_path / "m")
    assert type(paper.load_model(tmp_path / "m" / "concepts-quick-bayes-set-0-generated")).__name__ == "BayesianSets"


def test_a_damaged_model_is_an_error(tmp_path):
    paper.run("digits-text", tmp_path, methods=["Deep Sets"], settings={"epochs": 1}, models=tmp_path / "m")
    weights = tmp_path / "m" / "digits-text-quick-deep-sets-epochs-1-0" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(ValueError, match=r"is damaged: model\.safetensors has not the checksum"):
        paper.load_model(weights.parent)


def test_the_commit_of_a_record_is_that_of_the_code_whatever_results_were_written(tmp_path):
    def git(*arguments):
        person = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
        done = subprocess.run(["git", "-C", str(tmp_path), *person, *arguments], check=True, capture_output=True)
        return done.stdout.decode().strip()

    for name in ("src", "paper", "results"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("first")
    assert _commit.__wrapped__(tmp_path / "paper") == ""
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "First")
    commit = git("rev-parse", "--short=12", "HEAD")
    (tmp_path / "results" / "file").write_text("second")
    assert _commit.__wrapped__(tmp_path / "paper") == commit
    (tmp_path / "src" / "file").write_text("second")
    assert _commit.__wrapped__(tmp_path / "paper") == f"{commit}-dirty"
