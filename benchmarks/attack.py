"""Attacks on files, processes and the service, with every outcome counted; loopback only.

    python -m benchmarks.attack tables --count 5000
    python -m benchmarks.attack folders --count 3000
    python -m benchmarks.attack checkpoints --count 1000
    python -m benchmarks.attack kill-train --count 50      (also kill-fit, -save, -predict, -pool, -serve)
    python -m benchmarks.attack two --count 10
    python -m benchmarks.attack clients --seconds 60
    python -m benchmarks.attack soak --seconds 600

Files are damaged at random and read in subprocesses. An outcome is `done` (the damaged file was read), `sentence` (an
error of one line), or a failure: a traceback, exit code 70, or death by a signal. Failures are printed with the seed
that makes them again. With --write a run replaces its own row in results/attack.json.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .results import RESULTS, write

_TABLE = "<!-- written by python -m benchmarks.attack -->\n"
GOOD = ("done", "sentence", "previous checkpoint")
BATCH = 500  # damaged files per subprocess
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


# -------------------------------------------------------------------------------------------------------- checkpoints


def train_small(folder: Path, epochs: int = 4, **options: Any) -> Any:
    """Train a small network with a checkpoint after every step.

    Parameters
    ----------
    folder : Path
        Where the checkpoints are.
    epochs : int, default=4
        Passes over the data.
    **options
        As for `deepsets.train.train`.

    Returns
    -------
    ndarray
        All weights.
    """
    import torch

    from deepsets import Sets, nn
    from deepsets.train import Batch, train

    torch.manual_seed(0)
    model = nn.DeepSet(nn.mlp(2, 8, 8, dropout=0.2), nn.mlp(8, 1))
    sets = Sets.from_list([torch.randn(n, 2) for n in (3, 1, 5, 2, 4, 6) * 8])

    def loss(model: Any, batch: Any) -> Any:
        return (model(batch.sets) - batch.y).square().sum(), len(batch.y)

    data = Batch(sets, nn.pooling("sum")(sets)[:, :1])
    train(model, loss, data, epochs=epochs, batch_size=12, checkpoint_dir=folder, checkpoint_seconds=0, **options)
    return torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()


def write_checkpoints(folder: Path) -> None:
    """Write the checkpoints of a training that stopped half-way, and the weights of the whole training.

    Parameters
    ----------
    folder : Path
        Where to.
    """
    import numpy as np

    def fail(numbers: dict[str, float]) -> None:
        if numbers["epoch"] == 2:
            raise RuntimeError("power failure")

    np.save(folder / "whole.npy", train_small(folder / "whole"))
    with contextlib.suppress(RuntimeError):
        train_small(folder / "half", on_epoch=fail)


def attack_checkpoint(folder: Path, seed: int) -> str:
    """Flip one bit of a checkpoint, resume the training, and name the outcome.

    Parameters
    ----------
    folder : Path
        What :func:`write_checkpoints` wrote.
    seed : int
        Decides the bit.
    """
    import numpy as np

    from deepsets.train import CheckpointError

    rng = random.Random(seed)
    damaged = folder / f"damaged-{seed}"
    shutil.copytree(folder / "half", damaged)
    path = damaged / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    at = rng.randrange(len(content))
    content[at] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    if seed % 2:  # also without a previous checkpoint to fall back to
        (damaged / "checkpoint.previous.safetensors").unlink()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            weights = train_small(damaged)
        if not any("previous checkpoint" in str(w.message) for w in caught):
            return f"damaged file used: byte {at}"
        same = np.array_equal(weights, np.load(folder / "whole.npy"))
        return "previous checkpoint" if same else f"other weights: byte {at}"
    except CheckpointError as error:
        return "sentence" if str(error) else "an error without a sentence"
    except Exception as error:
        return f"traceback: {type(error).__name__}: {error}"[:500]
    finally:
        shutil.rmtree(damaged)


# -------------------------------------------------------------------------------------------------------- subprocesses

ATTACKS: dict[str, tuple[Callable[[Path], None], Callable[[Path, int], str]]] = {
    "tables": (write_tables, attack_table),
    "folders": (write_folders, attack_folder),
    "checkpoints": (write_checkpoints, attack_checkpoint),
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
    batch : int, default=500
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
            done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
            found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
            for seed, outcome in found:
                outcomes[outcome.split(":")[0]] += 1
                if outcome not in GOOD:
                    failures.append(f"seed {seed}: {outcome}")
            if done.returncode != 0 or len(found) < len(some):  # the seed after the last one ended the process
                lost = some[len(found)]
                outcomes["signal"] += 1
                failures.append(f"seed {lost}: exit code {done.returncode}: {done.stderr[-300:]}")
                seeds = some[len(found) + 1 :] + seeds
    return outcomes, failures


# ------------------------------------------------------------------------------------------------------------ results


def record(row: dict[str, Any]) -> None:
    """Put a row in the place of the one of the same attack in results/attack.json.

    Parameters
    ----------
    row : dict
        What an attack found.
    """
    path = RESULTS / "attack.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    write("attack", sorted([r for r in rows if r["attack"] != row["attack"]] + [row], key=lambda r: r["attack"]))


_CASES = {
    "tables": "mutated table files",
    "folders": "mutated model folders",
    "checkpoints": "checkpoints with one flipped bit",
    "kill-train": "SIGKILL of `train`",
    "kill-fit": "SIGKILL of `fit`, then `--resume`",
    "kill-save": "SIGKILL of `save` over an existing model",
    "kill-predict": "SIGKILL of `predict`",
    "kill-pool": "SIGKILL of `pool`",
    "kill-serve": "SIGKILL of `serve` under requests",
    "two": "two processes on one target, each of fit, save, predict, pool",
    "clients": "4 expensive clients and a cheap one",
    "bodies": "16 clients with large bodies and health checks",
    "soak": "64 clients",
}


def report(rows: list[dict[str, Any]]) -> str:
    """Return the rows of results/attack.json as the table of docs/reliability.md.

    Parameters
    ----------
    rows : list of dict
        The rows.
    """
    found = {row["attack"]: row for row in rows}
    lines = ["| attack | cases | outcome | failures |", "|---|---|---|---|"]
    for name, what in _CASES.items():
        if name in found:
            cases, outcome = _outcome(found[name])
            lines.append(f"| {what} | {cases} | {outcome} | {found[name]['failures']} |")
    return "\n".join(lines) + "\n"


def _outcome(row: dict[str, Any]) -> tuple[str, str]:
    if row["attack"] == "soak":
        memory = f"{row['MB after warm-up']:.0f} MB after the first minute, {row['MB at the end']:.0f} MB at the end"
        return row["case"].split(",")[0], (
            f"{row['answers']:,} right answers, {row['failed']} wrong; {memory} ({row['growth %']:+.1f} %)"
        )
    if "cheap requests" in row:
        return f"{row['seconds']:g} s", (
            f"{row['cheap requests']:,} cheap requests, {row['cheap errors']} errors; p99 {row['p99 alone ms']:.1f} ms "
            f"alone, {row['p99 beside ms']:.1f} ms beside the others ({row['times']:.1f} times); of theirs "
            f"{row['expensive answers']:,} answered, {row['expensive refused']:,} refused"
        )
    counts = {name: value for name, value in row.items() if name not in ("attack", "count", "failures") and value}
    what = {"done": "read and used", "sentence": "refused with a sentence", "ended before": "had ended before the kill"}
    return f"{row['count']:,}", ", ".join(f"{value:,} {what.get(name, name)}" for name, value in counts.items()) or "–"


def run(name: str, count: int, first: int, seconds: float) -> tuple[dict[str, Any], list[str]]:
    """Run an attack.

    Parameters
    ----------
    name : str
        The attack.
    count, first : int
        How many cases, and the first seed.
    seconds : float
        Of attacks by clients.

    Returns
    -------
    row : dict
        What was found.
    failures : list of str
        What must not happen.
    """
    if name in ATTACKS:
        outcomes, failures = run_attack(name, count, first)
        return {"count": count, **outcomes}, failures
    if name in ("clients", "bodies", "soak"):
        from . import attack_clients

        return attack_clients.ATTACKS[name](seconds)
    from . import attack_processes

    if name == "two":
        return attack_processes.run_pairs(count)
    return attack_processes.run_kills(name.removeprefix("kill-"), count, first)


def main() -> None:
    kills = [f"kill-{what}" for what in ("train", "fit", "save", "predict", "pool", "serve")]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attack", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=[*ATTACKS, *kills, "two", "clients", "bodies", "soak"])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--write", action="store_true", help="keep the result")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        folder, *seeds = args.worker
        for seed in map(int, seeds):
            print(json.dumps([seed, ATTACKS[args.name][1](Path(folder), seed)]), flush=True)
        return
    row, failures = run(args.name, args.count, args.first, args.seconds)
    row = {"attack": args.name, **row, "failures": len(failures)}
    print(json.dumps(row), *failures, sep="\n")
    if args.write:
        record(row)
        rows = json.loads((RESULTS / "attack.json").read_text())["rows"]
        page = RESULTS.parent / "docs" / "reliability.md"
        before, _, rest = page.read_text().partition(_TABLE)
        page.write_text(before + _TABLE + report(rows) + "\n" + rest.partition("\n\n")[2])
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
