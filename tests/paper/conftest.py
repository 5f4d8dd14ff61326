"""A toy experiment that takes no time, in the place of those of the paper."""

import sys
from types import SimpleNamespace

import pytest

import paper
import paper.__main__
from paper import Experiment, Measure, Outcome
from paper import experiment as registry
from paper.report import document

calls: list[tuple[str, int, str]] = []


def method(name, gain):
    def run(trial, part):
        gain_ = trial.choose(gain=gain).gain
        calls.append((name, trial.seed, part))
        assert trial.folder.is_dir()
        value = gain_ + trial.seed / 10
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
    methods={"Deep Sets": method("Deep Sets", 0.5), "LSTM": method("LSTM", 0.1), "Falls": interrupted},
    parts=lambda full: ("5", "10"),
    published={("Deep Sets", "M=5", "accuracy"): 0.4},
    figures={"A curve": curve},
)


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """Replace the experiments by the toy; give a function that replaces the toy."""
    calls.clear()
    (tmp_path / "toy.md").write_text("A test.\n\n## Full: made up\n\n## Quick: made up\n- two numbers\n  & no more\n")
    monkeypatch.setattr(registry, "NOTES", tmp_path)
    module = SimpleNamespace(EXPERIMENT=TOY)
    monkeypatch.setitem(sys.modules, "paper.experiments.toy", module)
    for place in (registry, document, paper, sys.modules["paper.__main__"]):
        monkeypatch.setattr(place, "NAMES", ("toy",))
    return lambda other: monkeypatch.setattr(module, "EXPERIMENT", other)


@pytest.fixture
def results(tmp_path, toy):
    folder = tmp_path / "results"
    paper.run("toy", folder, methods=["Deep Sets", "LSTM"], seeds=[0, 1])
    return folder
