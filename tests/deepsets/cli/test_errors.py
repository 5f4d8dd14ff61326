"""Exceptions as sentences and exit codes; usage errors; help."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from deepsets.cli.errors import explain_error
from deepsets.cli.predict import InferenceJob
from deepsets.train import TrainingError

from .commands import SIZES, frame, pd, run

PAGE = Path(__file__).parents[3] / "docs" / "command-line.md"


@pytest.mark.parametrize(
    ("error", "code", "match"),
    [
        (ValueError("set 3 is empty."), 1, "set 3 is empty."),
        (OSError(28, "No space left on device", "out.csv"), 1, r"disk is full .* out\.csv: No space left on device"),
        (PermissionError(13, "Permission denied", "t.csv"), 1, r"t\.csv: Permission denied"),
        (MemoryError(), 1, "not enough memory"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"),
            1,
            "not enough memory",
        ),
        (TrainingError("the loss became NaN in epoch 3: lower the learning rate."), 1, "the loss became NaN"),
        (BrokenPipeError(), 1, "has ended"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), 1, "not valid UTF-8"),
        (KeyError("x"), 70, r"this is a bug in deepsets \(KeyError: 'x'\)\. Please report it with the log file"),
    ],
)
def test_every_exception_has_a_sentence_and_an_exit_code(error, code, match):
    sentence, found = explain_error(error)
    assert found == code
    assert re.search(match, sentence)
    assert "\n" not in sentence


def test_a_bug_leaves_a_log_file_with_the_traceback(models, table, tmp_path, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(InferenceJob, "write", fail)
    message = run("predict", models / "top", table, "-o", tmp_path / "out.csv", code=70)
    log = Path(re.search(r"log file (\S+\.log)", message).group(1))
    assert "ZeroDivisionError: by zero" in log.read_text()
    log.unlink()


def test_usage_errors_have_exit_code_2(table):
    assert "Missing option '-o' / '--output'" in run("fit", table, code=2)
    assert "Missing argument 'model'" in run("predict", code=2)
    assert "No such command 'nonsense'" in run("nonsense", code=2)
    assert "Invalid value for '--timeout'" in run("serve", "--timeout", "inf", code=2)


def test_a_folder_that_is_not_a_model_is_an_error(table, tmp_path):
    message = run("predict", tmp_path, table, "-o", tmp_path / "out.csv", code=1)
    assert "is not a model folder: it has no config.json" in message


def test_expanders_cannot_be_used_for_predictions(table, tmp_path):
    (tmp_path / "sets.txt").write_text("a b c\na b d\n")
    run("fit", tmp_path / "sets.txt", "--task", "expansion", "-o", tmp_path / "model")
    assert "use `deepsets expand" in run("predict", tmp_path / "model", table, "-o", tmp_path / "out.csv", code=1)
    assert "cannot be exported to ONNX" in run("export", tmp_path / "model", "-o", tmp_path / "model.onnx", code=1)


def test_a_missing_extra_is_named(models, table, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = run("predict", models / "top", table, "-o", tmp_path / "out.csv", code=1)
    assert message == "Error: reading and writing tables needs pyarrow: pip install 'deepsets[data]'.\n"


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "explain", "export"])
def test_every_command_shows_examples_that_parse(command):
    text = run(command, "--help")
    examples = re.findall(rf"deepsets {command} [^\n]+", text)
    assert examples
    for example in examples:
        _, *args = shlex.split(example)
        assert not any(option not in text for option in args if option.startswith("--"))


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path, monkeypatch):
    """Every `$ deepsets …` of docs/command-line.md, in order, on the tables that the page describes."""
    monkeypatch.chdir(tmp_path)
    data = frame()
    table = pd.DataFrame({"cluster_id": data["box"], "u": data["a"], "g": data["b"], "z": data["sum"]})
    half = int(SIZES[:12].sum())
    table.iloc[:half].to_parquet("galaxies.parquet")
    table.iloc[half:].to_parquet("new.parquet")
    bags = data.rename(columns={"box": "bag", "tall": "active", "a": "f1", "b": "f2"})
    bags[["bag", "f1", "f2", "active"]].to_csv("bags.csv", index=False)
    commands = re.findall(r"^\$ deepsets (.+)$", PAGE.read_text(), re.MULTILINE)
    assert {command.split()[0] for command in commands} >= {"fit", "predict", "evaluate", "explain"}
    for command in commands:
        run(*shlex.split(command), *(["--epochs", "1"] if command.startswith("fit") else []))
