"""Attacks on tables, model folders and checkpoints: random damage, run in subprocesses, with every outcome counted.

    python -m benchmarks.attack tables --count 5000
    python -m benchmarks.attack folders --count 3000
    python -m benchmarks.attack kill-fit --count 50        (also kill-save, kill-predict)

An outcome is `done` (the damaged file was read), `sentence` (exit code 1 and an error of one line), or a failure: a
traceback, exit code 70, or death by a signal. Failures are printed with the seed that makes them again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

BATCH = 100  # damaged files per subprocess
KINDS = (".npz", ".arrow", ".parquet", ".csv", ".jsonl", "-nested.arrow", "-nested.parquet", "-offsets.npz")
_INTEGERS = (-1, 0, 1, 5, 255, 2**31 - 1, -(2**31), 2**31, 2**53, 2**63 - 1, -(2**63), 10**8)


# ------------------------------------------------------------------------------------------------------------ damage


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Damage a file: flipped bits, integers written over others, cuts, repeats, zeros, swapped pieces.

    Parameters
    ----------
    data : bytes
        A valid file.
    rng : random.Random
        The source of randomness.
    """
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not out:
            return b""
        at = rng.randrange(len(out))
        how = rng.randrange(8)
        if how <= 1:
            out[at] ^= 1 << rng.randrange(8)
        elif how == 2:
            size = rng.choice((4, 8))
            number = rng.choice(_INTEGERS) & ((1 << (8 * size)) - 1)
            at -= at % size
            out[at : at + size] = number.to_bytes(size, "little")
        elif how == 3:
            del out[at:]
        elif how == 4:
            del out[at : at + rng.randrange(1, 64)]
        elif how == 5:
            out[at:at] = out[at : at + rng.randrange(1, 64)]
        elif how == 6:
            stop = min(at + rng.randrange(1, 32), len(out))
            out[at:stop] = bytes(stop - at)
        else:
            out[at : at + 1] = rng.choice((b'"', b"[", b"{", b",", b"\n", b"nan", b"1e999", b"\xff", b"-", b"9" * 40))
    return bytes(out)


def mutate_json(value: Any, rng: random.Random) -> Any:
    """Damage one place of a JSON value: another type, another number, a missing or a repeated entry.

    Parameters
    ----------
    value : object
        A JSON value.
    rng : random.Random
        The source of randomness.
    """
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        out = dict(value)
        if rng.random() < 0.15:
            del out[name]
        else:
            out[name] = mutate_json(value[name], rng)
        return out
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        if rng.random() < 0.3:
            return value[:at] + value[at + 1 :] if rng.random() < 0.5 else [*value, value[at]]
        return [*value[:at], mutate_json(value[at], rng), *value[at + 1 :]]
    strange = (
        None,
        True,
        5,
        -1,
        10**6,
        10**12,
        0.5,
        float("nan"),
        "",
        "x",
        "<U500000000",
        [],
        [1],
        {},
        {"a": 1},
        1e308,
    )
    return rng.choice(strange)


# ------------------------------------------------------------------------------------------------------------ tables


def write_tables(folder: Path) -> None:
    """Write a small valid table in every format, and a model that reads it.

    Parameters
    ----------
    folder : Path
        Where to.
    """
    import numpy as np
    import pyarrow as pa
    from pyarrow import csv, feather, parquet

    import deepsets
    from deepsets.estimators import SetRegressor

    rng = np.random.default_rng(0)
    sizes = [3, 1, 5, 2, 4, 0, 6]
    ids = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=(len(ids), 2))
    long = pa.table({"box": ids, "a": x[:, 0], "b": x[:, 1], "w": [f"w{i % 3}" for i in ids]})
    ends = np.cumsum(sizes)[:-1]
    nested = pa.table(
        {"a": [v.tolist() for v in np.split(x[:, 0], ends)], "b": [v.tolist() for v in np.split(x[:, 1], ends)]}
    )
    np.savez(folder / "table.npz", **{name: long[name].to_numpy() for name in ("box", "a", "b")})
    np.savez(folder / "table-offsets.npz", a=x[:, 0], b=x[:, 1], offsets=np.concatenate([[0], np.cumsum(sizes)]))
    parquet.write_table(long, folder / "table.parquet")
    parquet.write_table(nested, folder / "table-nested.parquet")
    feather.write_feather(long, folder / "table.arrow", compression="uncompressed")
    feather.write_feather(nested, folder / "table-nested.arrow", compression="uncompressed")
    csv.write_csv(long, folder / "table.csv")
    (folder / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in long.to_pylist()))
    X = [part for part in np.split(x, ends) if len(part)]
    table = {
        "box": np.repeat(np.arange(len(X)), [len(v) for v in X]),
        "a": np.concatenate(X)[:, 0],
        "b": np.concatenate(X)[:, 1],
    }
    model = SetRegressor(model="linear", by="box", random_state=0).fit(pa.table(table), [v.sum() for v in X])
    deepsets.save(model, folder / "model")


def attack_table(folder: Path, seed: int) -> str:
    """Damage one table, predict from it in this process, and name the outcome.

    Parameters
    ----------
    folder : Path
        What :func:`write_tables` wrote.
    seed : int
        Decides the table and the damage.
    """
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    path = folder / f"damaged-{seed}{kind}"
    path.write_bytes(mutate((folder / f"table{kind}").read_bytes(), rng))
    output = folder / f"out-{seed}.parquet"
    try:
        return _command("predict", str(folder / "model"), str(path), "-o", str(output))
    finally:
        path.unlink(missing_ok=True)
        output.unlink(missing_ok=True)


def _command(*args: str) -> str:
    from typer.testing import CliRunner

    from deepsets.cli import app

    result = CliRunner().invoke(app, list(args))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"traceback: {type(result.exception).__name__}: {result.exception}"
    lines = [line for line in result.stderr.strip().splitlines() if not line.startswith("Note: ")]
    if result.exit_code == 0:
        return "done"
    if result.exit_code == 1 and len(lines) == 1 and lines[0].startswith("Error: "):
        return "sentence"
    return f"exit code {result.exit_code}: {result.stderr.strip()[:500]}"


# ----------------------------------------------------------------------------------------------------- model folders


def write_folders(folder: Path) -> None:
    """Write a small model folder of several classes.

    Parameters
    ----------
    folder : Path
        Where to.
    """
    import numpy as np

    import deepsets
    from deepsets import estimators, expand

    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, 2)) for n in (3, 1, 5, 2, 4, 6, 2, 3)]
    z = rng.normal(size=(len(X), 2))
    y = [float(x.max()) for x in X]
    words = [[f"w{int(abs(v) * 3)}" for v in x[:, 0]] for x in X]
    labels = ["low" if v < 1 else "high" for v in y]
    tiny = {"epochs": 1, "random_state": 0, "width": 4}
    models = {
        "linear": estimators.SetRegressor(model="linear", random_state=0).fit(X, y),
        "deep": estimators.SetClassifier(model="deep", n_estimators=2, **tiny).fit(X, labels, z=z),
        "forest": estimators.SetClassifier(model="forest", random_state=0).fit(X, labels),
        "tokens": estimators.SetRegressor(model="linear", random_state=0).fit(words, y),
        "members": estimators.MemberRegressor(**tiny).fit(X, [x[:, 0] for x in X], z=z),
        "bayesian": expand.BayesianSets().fit(words),
        "popularity": expand.Popularity().fit(words),
    }
    for name, model in models.items():
        deepsets.save(model, folder / name)


def attack_folder(folder: Path, seed: int) -> str:
    """Damage one model folder, with checksums that are right, load it, use it, and name the outcome.

    Parameters
    ----------
    folder : Path
        What :func:`write_folders` wrote.
    seed : int
        Decides the folder and the damage.
    """
    import numpy as np

    import deepsets
    from deepsets.io.model_folder import checksum

    rng = random.Random(seed)
    names = sorted(path.name for path in folder.iterdir() if (path / "config.json").is_file())
    name = names[seed % len(names)]
    damaged = folder / f".damaged-{seed}"
    shutil.copytree(folder / name, damaged)
    try:
        config = json.loads((damaged / "config.json").read_text())
        weights = (damaged / "model.safetensors").read_bytes()
        if rng.random() < 0.25:
            weights = mutate(weights, rng)
            (damaged / "model.safetensors").write_bytes(weights)
            if rng.random() < 0.8:
                config["weights"]["sha256"] = hashlib.sha256(weights).hexdigest()
        else:
            for _ in range(rng.choice((1, 1, 2))):
                config = mutate_json(config, rng)
        if isinstance(config, dict) and rng.random() < 0.95:
            config["sha256"] = checksum(config)
        (damaged / "config.json").write_text(json.dumps(config))
        try:
            model = deepsets.load(damaged)
        except deepsets.ModelFolderError as error:
            return "sentence" if str(error) else "an error without a sentence"
        try:
            if hasattr(model, "expand"):
                model.expand([model.vocabulary_[0]], k=2)
            else:
                tokens = getattr(model, "vocabulary_", None)
                X = [[tokens[0]]] if tokens else [np.zeros((2, model.n_features_in_))]
                model.predict(X, z=np.zeros((1, model.n_context_)) if model.n_context_ else None)
        except ValueError as error:
            return "sentence" if str(error) else "an error without a sentence"
        return "done"
    except Exception as error:
        return f"traceback: {type(error).__name__}: {error}"[:500]
    finally:
        shutil.rmtree(damaged, ignore_errors=True)


# -------------------------------------------------------------------------------------------------------- subprocesses

ATTACKS: dict[str, tuple[Callable[[Path], None], Callable[[Path, int], str]]] = {
    "tables": (write_tables, attack_table),
    "folders": (write_folders, attack_folder),
}


def run_attack(name: str, count: int, first: int = 0, batch: int = BATCH) -> tuple[Counter[str], list[str]]:
    """Run an attack in subprocesses.

    Parameters
    ----------
    name : str
        One of `ATTACKS`.
    count : int
        How many damaged files.
    first : int, default=0
        The first seed.
    batch : int, default=100
        How many per subprocess.

    Returns
    -------
    outcomes : Counter
        How often each outcome occurred.
    failures : list of str
        Seed and outcome of everything else than `done` and `sentence`.
    """
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        ATTACKS[name][0](Path(folder))
        seeds = list(range(first, first + count))
        while seeds:
            some, seeds = seeds[:batch], seeds[batch:]
            command = [sys.executable, "-m", "benchmarks.attack", name, "--worker", folder, *map(str, some)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
            for seed, outcome in found:
                kind = outcome if outcome in ("done", "sentence") else outcome.split(":")[0]
                outcomes[kind] += 1
                if outcome not in ("done", "sentence"):
                    failures.append(f"seed {seed}: {outcome}")
            if done.returncode != 0 or len(found) < len(some):  # the seed after the last one ended the process
                lost = some[len(found)]
                outcomes["signal"] += 1
                failures.append(f"seed {lost}: exit code {done.returncode}: {done.stderr[-300:]}")
                seeds = some[len(found) + 1 :] + seeds
    return outcomes, failures


# -------------------------------------------------------------------------------------------------------------- kills

_SAVER = """
import sys, deepsets
old = deepsets.load(sys.argv[1])
print("ready", flush=True)
while True:
    deepsets.save(old, sys.argv[2], overwrite=True)
"""


def run_kills(what: str, count: int, first: int = 0) -> list[str]:
    """Kill processes at random moments and check what they leave.

    Parameters
    ----------
    what : {"save", "fit", "predict"}
        ``save``: a model is saved over another one again and again; afterwards one of them can be loaded. ``fit`` and
        ``predict``: the command is run again (``fit`` with ``--resume``) and gives the result of an undisturbed run.
    count : int
        How many processes are killed.
    first : int, default=0
        The first seed.

    Returns
    -------
    list of str
        What went wrong.
    """
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
    command = [sys.executable, "-c", _SAVER, str(folder / "model"), str(target)]
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
    output = folder / ("fitted" if what == "fit" else "out.jsonl")
    command = [sys.executable, "-m", "deepsets", *_arguments(folder, what, output)]
    whole = folder / ("whole" if what == "fit" else "whole.jsonl")
    if not whole.exists():
        start = time.monotonic()
        subprocess.run([*command[:-1], str(whole)], check=True, capture_output=True)
        (folder / "seconds").write_text(str(time.monotonic() - start))
    for path in (output, folder / "fitted.checkpoint"):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(random.Random(seed).uniform(0.2, 1.0) * float((folder / "seconds").read_text()))
    process.kill()
    process.wait()
    if not output.exists():
        resume = ["--resume"] if (folder / "fitted.checkpoint").is_dir() else []
        again = subprocess.run([*command, *resume], capture_output=True, text=True, check=False)
        if again.returncode != 0:
            return f"exit code {again.returncode}: {again.stderr[-300:]}"
    contents = [(path / "model.safetensors" if what == "fit" else path).read_bytes() for path in (output, whole)]
    left = [path.name for path in folder.iterdir() if path.name.startswith(".") or path.name.endswith(".checkpoint")]
    return "another result" if contents[0] != contents[1] else f"left behind: {left}" if left else None


def _arguments(folder: Path, what: str, output: Path) -> list[str]:
    if what == "predict":
        return ["predict", str(folder / "model"), str(folder / "long.csv"), "-o", str(output)]
    options = ["--task", "member-regression", "--epochs", "6", "--width", "8", "--batch-size", "500"]
    return ["fit", str(folder / "long.csv"), "--by", "box", "--target", "y", *options, "-o", str(output)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attack", description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=[*ATTACKS, "kill-save", "kill-fit", "kill-predict"])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        folder, *seeds = args.worker
        for seed in map(int, seeds):
            print(json.dumps([seed, ATTACKS[args.name][1](Path(folder), seed)]), flush=True)
        return
    if args.name.startswith("kill-"):
        failures = run_kills(args.name.removeprefix("kill-"), args.count, args.first)
        outcomes = Counter({"same": args.count - len(failures), "failures": len(failures)})
    else:
        outcomes, failures = run_attack(args.name, args.count, args.first)
    print(json.dumps({"attack": args.name, "count": args.count, **outcomes}))
    for failure in failures:
        print(failure)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
