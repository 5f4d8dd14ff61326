"""Processes that are killed at random moments, and pairs of processes that write to one target.

Processes are forked from this one, which has only imported the library: a kill never falls into the imports, and
hundreds of them cost seconds each, not minutes. Undisturbed runs, runs that are killed and runs that follow them are
all made in this way.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

import deepsets.estimators
import deepsets.expand
import deepsets.serve
from deepsets import distributed
from deepsets.cli import app
from deepsets.train import loop

from . import attack
from .serving import cpu_seconds

KILLS = ("train", "fit", "save", "predict", "pool", "serve")
_PART = 2000  # members of a part of `pool`: thirty parts, each of which a later run can take over
_CHECKPOINT_SECONDS = 0.05  # of `fit`, in place of 30: a fit of seconds is resumed from a checkpoint too


# ------------------------------------------------------------------------------------------------------------ processes


def start(function: Callable[..., Any], *arguments: Any, log: Path) -> int:
    """Run a function in a forked process, with its output in a file.

    Parameters
    ----------
    function : callable
        What to run. The exit code is 1 after an exception, that of a `SystemExit`, or 0.
    *arguments
        Of the function.
    log : Path
        The file.

    Returns
    -------
    int
        The process id.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        function(*arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(pid: int) -> int:
    """Wait for a process; its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def command(*arguments: str | Path) -> None:
    """Run a command of the command line."""
    app([str(argument) for argument in arguments])


# -------------------------------------------------------------------------------------------------------------- kills


def run_kills(what: str, count: int, first: int = 0) -> tuple[dict[str, Any], list[str]]:
    """Kill processes at random moments and check what they leave.

    Parameters
    ----------
    what : {"train", "fit", "save", "predict", "pool", "serve"}
        ``save``: two models are saved over each other again and again; afterwards one of them can be loaded.
        ``serve``: a server is killed under requests, and started again on the same port. The others: the same command
        is run again (``fit`` with ``--resume``) and gives the bytes of an undisturbed run.
    count : int
        How many processes are killed before they have ended.
    first : int, default=0
        The first seed.

    Returns
    -------
    row : dict
        How many were killed, and how many had ended before.
    failures : list of str
        What went wrong.
    """
    failures, outcomes = [], Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _prepare(folder)
        kill = {"save": _kill_save, "serve": _kill_server}.get(what)
        seed = first
        while outcomes["killed"] < count and seed < first + 3 * count:
            ended, wrong = kill(folder, seed) if kill else _kill_run(folder, what, seed)
            outcomes["ended before" if ended else "killed"] += 1
            if wrong:
                failures.append(f"seed {seed}: {wrong}")
            seed += 1
    if outcomes["killed"] < count:
        failures.append(f"only {outcomes['killed']} of {count} processes were killed before they ended")
    return {"count": outcomes["killed"], "ended before": outcomes["ended before"]}, failures


def _prepare(folder: Path) -> None:
    """Write models and tables, in another process: this one must not compute before it forks."""

    def work() -> None:
        attack.write_tables(folder)
        rows = random.Random(0)
        for name, count in (("long.csv", 60_000), ("short.csv", 3_000)):
            lines = [f"{i // 3},{rows.gauss(0, 1):.4f},{rows.gauss(0, 1):.4f},{i % 7}" for i in range(count)]
            (folder / name).write_text("box,a,b,y\n" + "\n".join(lines) + "\n")
        long = pyarrow.csv.read_csv(folder / "long.csv")
        pyarrow.parquet.write_table(long, folder / "long.parquet", row_group_size=_PART)
        some = long.slice(0, 60).select(["box", "a", "b"])
        other = deepsets.estimators.SetRegressor(model="linear", by="box", random_state=0)
        deepsets.save(other.fit(some, [rows.random() for _ in range(20)]), folder / "other")

    if wait(start(work, log=folder / "log")):
        raise RuntimeError((folder / "log").read_text())


def _run(folder: Path, what: str, output: Path, *, resume: bool = False) -> None:
    """What is killed, and run undisturbed."""
    if what == "train":
        import numpy as np

        weights = attack.train_small(Path(f"{output}.checkpoint"), 15)
        with output.open("wb") as file:
            np.save(file, weights)
    elif what == "fit":
        loop.train.__kwdefaults__ |= {"checkpoint_seconds": _CHECKPOINT_SECONDS}  # type: ignore[operator]
        options = ["--task", "member-regression", "--epochs", "5", "--width", "8", "--batch-size", "100"]
        again = ["--resume"] if resume else []
        command("fit", folder / "short.csv", "--by", "box", "--target", "y", *options, "-o", output, *again)
    elif what == "predict":
        command("predict", folder / "model", folder / "long.csv", "-o", output)
    else:
        distributed.pool(folder / "model", folder / "long.parquet", output, part_size=_PART)


_SUFFIX = {"train": ".npy", "fit": "", "save": "", "predict": ".parquet", "pool": ".parquet"}


def _kill_run(folder: Path, what: str, seed: int) -> tuple[bool, str | None]:
    output, whole, log = folder / f"output{_SUFFIX[what]}", folder / f"whole{_SUFFIX[what]}", folder / "log"
    if not whole.exists():
        _, status, usage = os.wait4(start(_run, folder, what, whole, log=log), 0)
        if status:
            raise RuntimeError(log.read_text())
        (folder / "seconds").write_text(str(usage.ru_utime + usage.ru_stime))
        _remove(Path(f"{whole}.checkpoint"))
    _remove(output)
    checkpoints = Path(f"{output}.checkpoint")
    pid = start(_run, folder, what, output, log=log)
    # A moment in seconds of processor time, so that it falls into the work on a busy machine too.
    moment = random.Random(seed).random() * float((folder / "seconds").read_text())
    while _is_running(pid) and cpu_seconds(pid) < moment:
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    ended = wait(pid) == 0
    if not ended and output.exists() and what == "train":
        _remove(output)  # the array itself is not written atomically
    if not output.exists():
        resume = what == "fit" and checkpoints.is_dir()
        code = wait(start(lambda: _run(folder, what, output, resume=resume), log=log))
        if code:
            return ended, f"exit code {code}: {log.read_text()[-300:]}"
    if what == "train":
        _remove(checkpoints)  # kept on purpose by `train`
    same = _content(output) == _content(whole)
    left = _left(folder, output, whole)
    return ended, "another result" if not same else f"left behind: {left}" if left else None


def _kill_save(folder: Path, seed: int) -> tuple[bool, str | None]:
    target, log, models = folder / "saved", folder / "log", (folder / "model", folder / "other")
    if not target.exists():
        shutil.copytree(models[0], target)
    log.unlink(missing_ok=True)

    def work() -> None:
        both = [deepsets.load(path) for path in models]
        while True:
            for model in both:
                deepsets.save(model, target, overwrite=True)
                print("saved", flush=True)

    pid = start(work, log=log)
    while not log.exists() or "saved" not in log.read_text():
        time.sleep(0.01)
    time.sleep(random.Random(seed).random() * 0.1)
    os.kill(pid, signal.SIGKILL)
    wait(pid)
    if _content(target) not in [_content(path) for path in models]:
        return False, "neither the old nor the new model"
    if wait(start(lambda: deepsets.save(deepsets.load(target), target, overwrite=True), log=log)):
        return False, log.read_text()[-300:]
    left = _left(folder, target)
    return False, f"left behind: {left}" if left else None


def _kill_server(folder: Path, seed: int) -> tuple[bool, str | None]:
    import http.client

    log, port, rng = folder / "log", 20_000 + seed % 10_000, random.Random(seed)

    def ask() -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        kind = {"content-type": "application/json"}
        try:
            connection.request("POST", "/v1/predict", '{"sets": [[[1, 2], [3, 4]]]}', kind)
            return connection.getresponse().status
        finally:
            connection.close()

    for disturbed in (True, False):
        log.unlink(missing_ok=True)
        pid = start(command, "serve", folder / "model", "--port", str(port), log=log)
        until = time.monotonic() + 60
        while (not log.exists() or f":{port}/" not in log.read_text()) and time.monotonic() < until:
            time.sleep(0.01)
        if disturbed:
            client = start(lambda: [ask() for _ in range(1000)], log=folder / "client")
            time.sleep(rng.random() * 0.2)
            os.kill(pid, signal.SIGKILL)
            wait(pid)
            wait(client)
            continue
        try:
            status = ask()
        except OSError as error:
            return False, f"{error}: {log.read_text()[-300:]}"
        os.kill(pid, signal.SIGTERM)
        code = wait(pid)
        return False, None if (status, code) == (200, 0) else f"status {status}, exit code {code}"
    raise AssertionError


def _is_running(pid: int) -> bool:
    return not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z")


def _content(path: Path) -> bytes:
    return (path / "model.safetensors" if path.is_dir() else path).read_bytes()


def _left(folder: Path, *outputs: Path) -> list[str]:
    """Files that a killed process left behind."""
    known = {"log", "client", "seconds", "model", "other", "saved", *(path.name for path in outputs)}
    names = [path.name for path in folder.iterdir()]
    return [name for name in names if name not in known and not name.startswith(("table", "long.", "short."))]


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


# -------------------------------------------------------------------------------------------------------------- pairs


def run_pairs(count: int) -> tuple[dict[str, Any], list[str]]:
    """Start two processes at once that write to one target: fit, save, predict and pool.

    Parameters
    ----------
    count : int
        How many pairs of each.

    Returns
    -------
    row : dict
        How often one worked and the other got a sentence, or both worked one after the other.
    failures : list of str
        Everything else.
    """
    outcomes: Counter[str] = Counter()
    failures = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _prepare(folder)
        for what in ("fit", "predict", "pool", "save"):
            for i in range(count):
                outcome = _pair(folder, what)
                _remove(folder / f"pair{_SUFFIX[what]}")
                outcomes[f"{what}: {outcome.split(':')[0]}"] += 1
                if outcome not in ("one worked, one sentence", "both worked in turn"):
                    failures.append(f"{what} {i}: {outcome}")
    return {"count": count, **outcomes}, failures


def _pair(folder: Path, what: str) -> str:
    for old in folder.glob("pair*"):  # of another command
        _remove(old)
    output = folder / f"pair{_SUFFIX[what]}"

    def save() -> None:
        model = deepsets.load(folder / "model")
        try:
            for _ in range(20):
                deepsets.save(model, output, overwrite=True)
        except (OSError, ValueError) as error:  # called from Python: an exception with a sentence
            print(error)
            sys.exit(1)

    logs = [folder / "log", folder / "client"]
    run = save if what == "save" else lambda: _run(folder, what, output)
    codes = sorted(wait(pid) for pid in [start(run, log=log) for log in logs])
    printed = " ".join(log.read_text() for log in logs)
    if not output.exists():
        return f"no output: {codes} {printed[-300:]}"
    left = _left(folder, output)
    if left:
        return f"left behind: {left}"
    if codes == [0, 0]:
        return "both worked in turn"
    sentence = "is being written by another process" in printed or "exists" in printed
    traced = "Traceback" in printed and what != "pool"  # `pool` is called from Python
    return "one worked, one sentence" if codes == [0, 1] and sentence and not traced else f"{codes}: {printed[-300:]}"
