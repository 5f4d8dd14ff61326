"""Fault tolerance of the local engine: killed workers, killed drivers, damaged files."""

import functools
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import closing

import pytest
import torch

from deepsets import distributed
from deepsets.distributed import jobs, workers
from deepsets.files import FileInUseError

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")

from tests.deepsets.distributed.test_distributed import ALONE, model, rows, shards

DRIVER = """
import os, pickle, signal, sys
from pathlib import Path
from deepsets import distributed
done = []

def after_two(*_):
    done.append(1)
    if len(done) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

net = pickle.loads(Path(sys.argv[1]).read_bytes())
options = {"by": "box", "engine": distributed.Engine(workers=1), "part_size": 50}
distributed.pool(net, sys.argv[2], sys.argv[3], progress=after_two, **options)
"""


def test_a_killed_driver_leaves_no_output_and_is_resumed(tmp_path):
    table = shards(rows(300, 12), tmp_path / "t", group=50)
    options = {"by": "box", "engine": ALONE, "part_size": 50}
    whole = distributed.pool(model("std"), table, tmp_path / "whole.parquet", **options)
    assert (whole["parts"], whole["resumed"]) == (6, 0)
    out = tmp_path / "out.parquet"
    (tmp_path / "net").write_bytes(pickle.dumps(model("std")))
    code = [sys.executable, "-c", DRIVER, tmp_path / "net", table, out]
    assert subprocess.run(code, check=False).returncode == -signal.SIGKILL
    assert not out.exists()
    assert (tmp_path / "out.parquet.parts" / "job.json").is_file()
    with pytest.raises(ValueError, match=r"holds the steps of another, interrupted run \(different: model, parts\)"):
        distributed.pool(model("sum"), table, out, by="box", engine=ALONE)
    again = distributed.pool(model("std"), table, out, **options)
    assert (again["resumed"], again["sets"], again["members"]) == (2, whole["sets"], 300)
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert not (tmp_path / "out.parquet.parts").exists()


def test_a_driver_killed_before_its_first_file_was_complete_is_resumed(tmp_path):
    table, parts = shards(rows(60, 5), tmp_path / "t"), tmp_path / "out.parquet.parts"
    parts.mkdir()
    (parts / ".job.json.tmp").write_text('{"kind"')
    distributed.pool(model("std"), table, tmp_path / "out.parquet", by="box", engine=ALONE)
    assert not parts.exists()
    parts = tmp_path / "other.parquet.parts"
    parts.mkdir()
    (parts / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds the steps of another, interrupted run"):
        distributed.pool(model("std"), table, tmp_path / "other.parquet", by="box", engine=ALONE)
    assert (parts / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["out", "out.parquet"])
def test_a_crash_before_the_output_is_published_is_resumed(name, tmp_path, monkeypatch):
    table, options = shards(rows(300, 12), tmp_path / "t"), {"by": "box", "engine": ALONE}
    publish = jobs.publish
    monkeypatch.setattr(jobs, "publish", lambda *_: (_ for _ in ()).throw(RuntimeError("power cut")))
    with pytest.raises(RuntimeError, match="power cut"):
        distributed.predict(model("std"), table, tmp_path / name, **options)
    assert not (tmp_path / name).exists()
    monkeypatch.setattr(jobs, "publish", publish)
    assert distributed.predict(model("std"), table, tmp_path / name, **options)["resumed"] == 1
    with pytest.raises(ValueError, match=f"{name} exists: choose another path, or --overwrite"):
        distributed.predict(model("std"), table, tmp_path / name, **options)
    distributed.predict(model("max"), table, tmp_path / name, **options, overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == [name, "t"]


def test_a_second_run_for_the_same_output_is_refused_and_changes_nothing(tmp_path):
    table, out, refused = shards(rows(300, 12), tmp_path / "t", group=50), tmp_path / "out.parquet", []

    def again(*_):
        if not refused:
            with pytest.raises(FileInUseError, match=r"out.parquet.parts is being written by another process"):
                distributed.pool(model("max"), table, out, by="box", engine=ALONE, overwrite=True)
            refused.append(True)

    options = {"by": "box", "engine": ALONE, "part_size": 50}
    assert distributed.pool(model("std"), table, out, progress=again, **options)["members"] == 300
    assert refused


@pytest.mark.parametrize("damaged", ["map-000001-0.arrow", "map-000003-0.arrow", "reduce-1-000000-0.parquet"])
def test_a_damaged_step_is_noticed_and_done_again(damaged, tmp_path, monkeypatch):
    table = shards(rows(300, 12), tmp_path / "t", group=50)
    options = {"by": "box", "engine": ALONE, "part_size": 50}
    distributed.pool(model("std"), table, tmp_path / "whole.parquet", **options)
    publish = jobs.publish
    monkeypatch.setattr(jobs, "publish", lambda *_: (_ for _ in ()).throw(RuntimeError("power cut")))
    with pytest.raises(RuntimeError, match="power cut"):
        distributed.pool(model("std"), table, tmp_path / "out.parquet", **options)
    monkeypatch.setattr(jobs, "publish", publish)
    file = tmp_path / "out.parquet.parts" / damaged
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))  # same size, one bit differs
    facts = distributed.pool(model("std"), table, tmp_path / "out.parquet", **options)
    assert facts["resumed"] == (6 if damaged.startswith("reduce") else 5)
    assert (tmp_path / "out.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_killed_workers_are_replaced_and_the_states_are_the_same(tmp_path):
    table = shards(rows(2000, 40), tmp_path / "t", group=50)
    options = {"by": "box", "part_size": 50}
    distributed.pool(model(["max", "std"]), table, tmp_path / "alone.parquet", engine=ALONE, **options)
    killed = []

    def kill(*_):
        until = time.monotonic() + 60
        while len(killed) < 8 and time.monotonic() < until:  # a dead worker is replaced while this process works
            child = next(iter(multiprocessing.active_children()), None)
            if child is not None:
                os.kill(child.pid, signal.SIGKILL)
                child.join()
                killed.append(child.pid)
                break

    engine = distributed.Engine(workers=2)
    facts = distributed.pool(
        model(["max", "std"]), table, tmp_path / "o.parquet", engine=engine, progress=kill, **options
    )
    assert len(killed) == 8 and facts["members"] == 2000
    assert (tmp_path / "o.parquet").read_bytes() == (tmp_path / "alone.parquet").read_bytes()


def _end_other_processes(own: int, item: int) -> int:
    if os.getpid() != own:
        os._exit(item)
    return item


@pytest.mark.slow
def test_an_item_that_kills_every_worker_ends_the_run(monkeypatch):
    monkeypatch.setattr(workers, "PATIENCE", 3)
    with (
        pytest.raises(RuntimeError, match=r"3 worker processes died of the same part: is there enough memory"),
        closing(workers.Workers(functools.partial(_end_other_processes, os.getpid()), 2, processes=True)) as two,
    ):
        list(two.map([1, 2]))


@pytest.mark.parametrize(("count", "items", "wanted"), [(1, 2, 1), (2, 2, 1), (2, 1, 2)])
def test_workers_share_the_threads(count, items, wanted):
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        here = workers.Workers(lambda _: torch.get_num_threads(), count, processes=False)
        assert [found for _, found in here.map(range(items))] == [wanted] * items
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
