"""Full disks and killed processes: a sentence, the old or the new file, nothing left behind. Long form: benchmarks."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import deepsets
from benchmarks.attack_processes import KILLS
from deepsets.estimators import SetRegressor

pa = pytest.importorskip("pyarrow")
csv = pytest.importorskip("pyarrow.csv")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    table = pa.table({"box": np.repeat(np.arange(30_000), 2), "a": rng.normal(size=60_000)})
    csv.write_csv(table, folder / "t.csv")
    X = [rng.normal(size=(3, 1)) for _ in range(20)]
    frame = pa.table({"box": np.repeat(np.arange(20), 3), "a": np.concatenate(X)[:, 0]})
    deepsets.save(SetRegressor(model="linear", by="box").fit(frame, [x.max() for x in X]), folder / "model")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("limit", [100, 60_000, 1_100_000])
def test_a_file_that_may_not_grow_is_a_sentence_and_leaves_the_old_output(data, tmp_path, limit):
    output = tmp_path / "out.jsonl"
    output.write_text("old")
    # -B: or Python itself would write its caches cut short.
    command = [
        sys.executable,
        "-B",
        "-m",
        "deepsets",
        "predict",
        str(data / "model"),
        str(data / "t.csv"),
        "-o",
        str(output),
    ]
    done = subprocess.run(
        [*command, "--overwrite"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr
    assert output.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.jsonl"]


@pytest.mark.slow
@pytest.mark.parametrize("what", [*(f"kill-{what}" for what in KILLS), "two"])
def test_killed_processes_and_pairs_leave_the_old_or_the_new(what):
    command = [sys.executable, "-m", "benchmarks.attack", what, "--count", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
