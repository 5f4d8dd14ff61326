"""`SetClassifier()` and `SetRegressor()` against their defaults of an earlier commit, on folds of `benchmarks.tables`.

The earlier estimators were one kind of head, deep networks (batches of 16 sets). They are
taken from the history of the repository and run in a process of their own; the present ones are those of
results/.tables, so `python -m benchmarks tables` comes first. Tasks with lists of arrays, the first three folds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from typing import Any

import numpy as np

from .results import RESULTS, write
from .tables import PARTS, TASKS, fit_ours, measure, split

COMMIT = "ad86de6"
FOLDS = 3
NAMES = ("low-dimensional MIL", "protein", "weak", "ucsb_breast_cancer", "interaction")
KEPT = RESULTS / ".work" / "earlier.json"


def fold(name: str, number: int) -> dict[str, Any]:
    """Score and CPU seconds of one fold, with whatever `deepsets` is imported."""
    task = TASKS[name]()
    seen, held = split(name, task)[number]
    found, seconds, model = fit_ours(task, seen, held)
    return {
        "score": measure(task, held, found, None if task.regression else model.classes_)["score"],
        "seconds": seconds,
    }


def earlier(name: str, number: int, source: str) -> dict[str, Any]:
    """The same in a process that imports the earlier library."""
    code = f"import json; from benchmarks.earlier import fold; print(json.dumps(fold({name!r}, {number})))"
    environment = os.environ | {"PYTHONPATH": f"{source}/src:{RESULTS.parent}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def run() -> list[dict[str, Any]]:
    kept: dict[str, list[dict[str, Any]]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    archive = subprocess.run(
        ["git", "archive", COMMIT, "src"], cwd=RESULTS.parent, capture_output=True, check=True
    ).stdout
    rows = []
    with tempfile.TemporaryDirectory() as source:
        tarfile.open(fileobj=BytesIO(archive)).extractall(source, filter="data")
        for name in NAMES:
            before = kept.setdefault(name, [])
            for number in range(len(before), FOLDS):
                before.append(earlier(name, number, source))
                KEPT.parent.mkdir(exist_ok=True)
                KEPT.write_text(json.dumps(kept))
                print(name, number, before[-1], flush=True)
            now = json.loads((PARTS / f"{name.replace(' ', '_')}.json").read_text())["ours"][:FOLDS]
            scores = np.array([[row["score"] for row in each] for each in (before, now)])
            gain = scores[1] - scores[0]
            row: dict[str, Any] = {"task": name, "earlier": scores[0].mean(), "now": scores[1].mean()}
            row |= {"difference": gain.mean(), "standard error": gain.std(ddof=1) / FOLDS**0.5}
            seconds = ([row["seconds"] for row in each] for each in (before, now))
            row |= {f"CPU seconds, {when}": np.mean(s) for when, s in zip(("earlier", "now"), seconds, strict=True)}
            rows.append({key: value if key == "task" else float(value) for key, value in row.items()})
    write("earlier-defaults", rows, commit=COMMIT, protocol=f"the first {FOLDS} folds of benchmarks.tables, one thread")
    return rows
