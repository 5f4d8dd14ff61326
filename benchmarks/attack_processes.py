"""Processes that are killed at random moments, and pairs of processes that write to one target."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

DEEPSETS = [sys.executable, "-m", "deepsets"]
_SAVER = """
import sys, deepsets
old = deepsets.load(sys.argv[1])
print("ready", flush=True)
for _ in range(int(sys.argv[3])):
    deepsets.save(old, sys.argv[2], overwrite=True)
"""
_TRAINER = """
import sys
from pathlib import Path
import numpy
from benchmarks.attack import train_small
print("ready", flush=True)
weights = train_small(Path(sys.argv[1] + ".checkpoint"), 60)
numpy.save(open(sys.argv[1], "wb"), weights)
"""


def run_kills(what: str, count: int, first: int = 0) -> list[str]:
    """Kill processes at random moments and check what they leave.

    Parameters
    ----------
    what : {"train", "fit", "save", "predict", "pool"}
        ``save``: a model is saved over another one again and again; afterwards one of them can be loaded. The others:
        the command is run again (``fit`` with ``--resume``) and gives the bytes of an undisturbed run.
    count : int
        How many processes are killed.
    first : int, default=0
        The first seed.

    Returns
    -------
    list of str
        What went wrong.
    """
    from .attack import write_tables

    failures = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder)
        _write_long(folder / "long.csv")
        for seed in range(first, first + count):
            wrong = _kill_save(folder, seed) if what == "save" else _kill_command(folder, what, seed)
            if wrong:
                failures.append(f"seed {seed}: {wrong}")
    return failures


def _write_long(path: Path) -> None:
    rows = random.Random(0)
    lines = [f"{i // 3},{rows.gauss(0, 1):.4f},{rows.gauss(0, 1):.4f},{i % 7}" for i in range(60_000)]
    path.write_text("box,a,b,y\n" + "\n".join(lines) + "\n")


def _kill_save(folder: Path, seed: int) -> str | None:
    import deepsets

    target = folder / "saved"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder / "model", target)
    command = [sys.executable, "-c", _SAVER, str(folder / "model"), str(target), "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(random.Random(seed).random() * 0.3)
        process.kill()
    try:
        deepsets.save(deepsets.load(target), target, overwrite=True)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    left = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    return f"left behind: {left}" if left else None


def _kill_command(folder: Path, what: str, seed: int) -> str | None:
    output, whole = (folder / f"{name}{_SUFFIX[what]}" for name in ("output", "whole"))
    if not whole.exists():
        start = time.monotonic()
        subprocess.run(_command(folder, what, whole), check=True, capture_output=True)
        (folder / "seconds").write_text(str(time.monotonic() - start))
        _remove(Path(f"{whole}.checkpoint"))
    checkpoints = Path(f"{output}.checkpoint")
    _remove(output)
    _remove(checkpoints)
    process = subprocess.Popen(_command(folder, what, output), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(random.Random(seed).uniform(0.2, 1.0) * float((folder / "seconds").read_text()))
    process.kill()
    process.wait()
    if not output.exists() or what == "train":
        resume = ["--resume"] if what == "fit" and checkpoints.is_dir() else []
        again = subprocess.run([*_command(folder, what, output), *resume], capture_output=True, text=True, check=False)
        if again.returncode != 0:
            return f"exit code {again.returncode}: {again.stderr[-300:]}"
    if what == "train":
        _remove(checkpoints)  # kept on purpose by `train`
    contents = [(path / "model.safetensors" if what == "fit" else path).read_bytes() for path in (output, whole)]
    known = {"long.csv", "seconds", "model", output.name, whole.name}
    left = [path.name for path in folder.iterdir() if path.name not in known and not path.name.startswith("table")]
    return "another result" if contents[0] != contents[1] else f"left behind: {left}" if left else None


_SUFFIX = {"train": ".npy", "fit": "", "predict": ".parquet", "pool": ".parquet"}


def _command(folder: Path, what: str, output: Path) -> list[str]:
    if what == "train":
        return [sys.executable, "-c", _TRAINER, str(output)]
    table = str(folder / "long.csv")
    if what == "fit":
        options = ["--task", "member-regression", "--epochs", "6", "--width", "8", "--batch-size", "500"]
        return [*DEEPSETS, "fit", table, "--by", "box", "--target", "y", *options, "-o", str(output)]
    more = ["--workers", "1"] if what == "pool" else []
    return [*DEEPSETS, what, str(folder / "model"), table, "-o", str(output), *more]


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def run_pairs(count: int) -> tuple[Counter[str], list[str]]:
    """Start two processes at once that write to one target: fit, save, predict and pool.

    Parameters
    ----------
    count : int
        How many pairs of each.

    Returns
    -------
    outcomes : Counter
        How often one worked and the other got a sentence, or both worked one after the other.
    failures : list of str
        Everything else.
    """
    from .attack import write_tables

    outcomes: Counter[str] = Counter()
    failures = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder)
        _write_long(folder / "long.csv")
        for what in ("fit", "predict", "pool", "save"):
            for i in range(count):
                outcome = _pair(folder, what)
                outcomes[f"{what}: {outcome.split(':')[0]}"] += 1
                if outcome not in ("one worked, one sentence", "both worked in turn"):
                    failures.append(f"{what} {i}: {outcome}")
    return outcomes, failures


def _pair(folder: Path, what: str) -> str:
    output = folder / f"pair{_SUFFIX.get(what, '')}"
    _remove(output)
    if what == "save":
        command = [sys.executable, "-c", _SAVER, str(folder / "model"), str(output), "300"]
    else:
        command = _command(folder, what, output)
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    ends = sorted((process.communicate()[1], process.returncode) for process in processes)
    codes = sorted(code for _, code in ends)
    said = " ".join(text for text, _ in ends)
    if not output.exists():
        return f"no output: {codes} {said[-300:]}"
    left = [path.name for path in folder.iterdir() if path.name.startswith(".") or path.suffix == ".checkpoint"]
    if left:
        return f"left behind: {left}"
    if codes == [0, 0]:
        return "both worked in turn"
    sentence = "is being written by another process" in said or "exists" in said
    traced = "Traceback" in said and what != "save"  # `save` is called from Python
    return "one worked, one sentence" if codes == [0, 1] and sentence and not traced else f"{codes}: {said[-300:]}"
