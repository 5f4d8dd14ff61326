"""The frame of the experiments: what is run, what is kept, what is reported."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from paper.report import report as _report
from paper.report.tables import number
from typer.testing import CliRunner

import paper
from deepsets.cli import app
from paper import Experiment, Measure, Outcome
from paper import registry as _registry

calls: list[tuple[str, int, str]] = []


def method(name, gain):
    def run(trial, part):
        calls.append((name, trial.seed, part))
        assert trial.folder.is_dir()
        value = gain + trial.seed / 10
        return Outcome(
            [Measure(f"M={part}", "accuracy", value), Measure(f"M={part}", "mse", 1 - value)], {"part": part}
        )

    return run


def interrupted(trial, part):
    if part == "10" and not (trial.folder / "checkpoint").exists():
        (trial.folder / "checkpoint").write_text("half way")
        raise KeyboardInterrupt
    return Outcome([Measure(f"M={part}", "accuracy", 0.5)])


def curve(records):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3, 2))
    figure.add_subplot().plot([len(record.parts) for record in records])
    return figure


TOY = Experiment(
    name="toy",
    title="A <toy>",
    section="0.0",
    data=lambda full: "made up",
    reductions=lambda full: [] if full else ["two numbers & no more"],
    methods={"Deep Sets": method("Deep Sets", 0.5), "LSTM": method("LSTM", 0.1), "Falls": interrupted},
    parts=lambda full: ("5", "10"),
    published={("Deep Sets", "M=5", "accuracy"): 0.4},
    figures={"A curve": curve},
)


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    calls.clear()
    monkeypatch.setitem(sys.modules, "deepsets.paper.toy", SimpleNamespace(EXPERIMENT=TOY))
    monkeypatch.setattr(_registry, "NAMES", ("toy",))
    monkeypatch.setattr(_report, "NAMES", ("toy",))
    monkeypatch.setattr(paper, "NAMES", ("toy",))


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    paper.run("toy", folder, methods=["Deep Sets", "LSTM"], seeds=[0, 1])
    return folder


def test_what_is_done_is_not_done_again(results):
    assert len(calls) == 8
    lines = []
    paper.run("toy", results, methods=["Deep Sets", "LSTM"], seeds=[0, 1, 2], say=lines.append)
    assert len(calls) == 12
    assert sum("done before" in line for line in lines) == 8


def test_full_and_quick_runs_are_kept_apart(results):
    paper.run("toy", results, full=True, methods=["LSTM"], seeds=[0])
    assert {row.protocol for row in paper.rows(paper.records(results))} == {"quick", "full"}
    assert (results / "toy-full" / "lstm-0.json").exists()


def test_an_interrupted_run_keeps_its_finished_parts_and_its_checkpoint(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        paper.run("toy", tmp_path, methods=["Falls"], seeds=[0])
    assert list(paper.records(tmp_path)[0].parts) == ["5"]
    (record,) = paper.run("toy", tmp_path, methods=["Falls"], seeds=[0], resume=True)
    assert list(record.parts) == ["5", "10"]
    assert not list((tmp_path / ".work").rglob("checkpoint"))


def test_without_resume_an_interrupted_part_starts_anew(tmp_path):
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


def test_the_report_is_made_of_the_records_alone(results):
    pytest.importorskip("matplotlib")
    text, page = paper.report(results)
    table = text.read_text()
    assert "| M=5 | accuracy | **0.55 ± 0.0707** (0.4) | 0.15 ± 0.0707 |" in table
    assert "| M=5 | mse | **0.45" in table  # for an error, less is better
    assert "two numbers & no more" in table and "results/figures/toy-a-curve.svg" in table
    html = page.read_text()
    assert "A &lt;toy&gt;" in html and "two numbers &amp; no more" in html and "<svg" in html
    assert "src=" not in html and "<link" not in html and "@import" not in html
    assert paper.report(results)[1].read_text() == html


def test_the_report_says_who_has_fewer_seeds_and_takes_the_protocol_of_the_newest_record(results, monkeypatch):
    pytest.importorskip("matplotlib")
    place = results / "toy-quick" / "lstm-0.json"
    old = json.loads(place.read_text())
    place.write_text(json.dumps(old | {"date": "9999-01-01T00:00:00+00:00", "reductions": ["half of the data"]}))
    paper.run("toy", results, methods=["Deep Sets"], seeds=[2])
    told = paper.report(results)[0].read_text()
    assert "Quick protocol, seeds 0, 1, 2 (LSTM: 0, 1); " in told
    assert "- half of the data" in told
    monkeypatch.setattr(sys.modules["deepsets.paper.toy"], "EXPERIMENT", replace(TOY, seeds=lambda full: (0, 1, 2, 3)))
    assert "Quick protocol, seeds 0, 1, 2 of 0, 1, 2, 3 (LSTM: 0, 1); " in paper.report(results)[0].read_text()


def test_what_is_not_asked_of_a_method_is_not_recorded_and_may_be_asked_later(tmp_path, monkeypatch):
    asked, lines = {"5"}, []

    def some(trial, part):
        return Outcome([Measure(part, "accuracy", 1.0)] if part in asked else [])

    monkeypatch.setattr(sys.modules["deepsets.paper.toy"], "EXPERIMENT", replace(TOY, methods={"Some": some}))
    (first,) = paper.run("toy", tmp_path, seeds=[0], say=lines.append)
    assert list(first.parts) == ["5"] and "10: not asked" in lines[-1]
    asked.add("10")
    (second,) = paper.run("toy", tmp_path, seeds=[0], say=lines.append)
    assert list(second.parts) == ["5", "10"] and "done before" in lines[-2]


def test_figures_of_data_that_may_not_be_passed_on_stay_in_the_page(results, monkeypatch):
    pytest.importorskip("matplotlib")
    two = {**TOY.figures, "Free to see": TOY.figures["A curve"]}
    both = replace(TOY, figures=two, show_data=["A curve"])
    monkeypatch.setattr(sys.modules["deepsets.paper.toy"], "EXPERIMENT", both)
    assert "figures/toy-a-curve.svg" in paper.report(results)[0].read_text()  # quick forms show made-up data
    (results / "figures" / "toy-a-curve.svg").unlink()
    paper.run("toy", results, full=True, methods=["LSTM"], seeds=[0])
    text, page = paper.report(results)
    assert "may not be passed on are in the `report.html` that the command makes: A curve." in text.read_text()
    assert page.read_text().count("<svg") == 2 and "figures/toy-free-to-see.svg" in text.read_text()
    assert [picture.name for picture in (results / "figures").iterdir()] == ["toy-free-to-see.svg"]


def test_the_commands(results):
    run = CliRunner().invoke(app, ["paper", "report", "--results", str(results), "--json"])
    rows = json.loads(run.stdout)
    wanted = "experiment data method metric value std seeds paper protocol reductions seconds".split()
    assert len(rows) == 8 and list(rows[0]) == wanted
    listed = CliRunner().invoke(app, ["paper", "list"])
    assert listed.exit_code == 0 and "toy" in listed.stdout
    again = CliRunner().invoke(
        app, ["paper", "run", "toy", "--method", "LSTM", "--seed", "0", "--results", str(results)]
    )
    assert "done before" in again.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nothing"], "there is no experiment 'nothing': the paper has toy"),
        (["run", "toy", "--method", "GRU"], "toy has no method 'GRU': it has Deep Sets, LSTM, Falls"),
        (["report"], "there are no results in"),
    ],
)
def test_what_the_user_can_mend_is_a_sentence(tmp_path, arguments, message):
    run = CliRunner().invoke(app, ["paper", *arguments, "--results", str(tmp_path)])
    assert run.exit_code == 1 and message in " ".join(run.output.split())


def test_a_broken_record_is_named(tmp_path):
    (tmp_path / "toy-quick").mkdir()
    (tmp_path / "toy-quick" / "x-0.json").write_text('{"half":')
    with pytest.raises(ValueError, match=r"x-0\.json is not the record of a run"):
        paper.records(tmp_path)


def test_numbers_in_tables():
    assert [number(v) for v in (0.0, 0.12345, 99.96, 123456.0)] == ["0", "0.123", "100", "123456"]
