"""Workers that are killed, drivers that crash: nothing is lost, doubled or done twice."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from functools import partial

import pytest

from deepsets import distributed

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")

from tests.deepsets.distributed.test_distributed import ALONE, model, rows, shards

DRIVER = """
import os, pickle, signal, sys
from pathlib import Path
from deepsets import distributed
done = []

def after_two(_):
    done.append(1)
    if len(done) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

net = pickle.loads(Path(sys.argv[1]).read_bytes())
distributed.pool(net, sys.argv[2], sys.argv[3], by="box", engine=distributed.Engine(workers=1), part_size=50, progress=after_two)
"""


def test_a_driver_that_is_killed_leaves_what_is_recognisably_incomplete_and_is_taken_up(tmp_path):
    table = shards(rows(300, 12), tmp_path / "t", group=50)
    options = {"by": "box", "engine": ALONE, "part_size": 50}
    whole = distributed.pool(model("std"), table, tmp_path / "whole.parquet", **options)
    assert (whole["parts"], whole["found_done"]) == (6, 0)
    out = tmp_path / "out.parquet"
    (tmp_path / "net").write_bytes(pickle.dumps(model("std")))
    code = [sys.executable, "-c", DRIVER, tmp_path / "net", table, out]
    assert subprocess.run(code, check=False).returncode == -signal.SIGKILL
    assert not out.exists()
    assert (tmp_path / "out.parquet.parts" / "_manifest.json").is_file()
    with pytest.raises(ValueError, match=r"holds the parts of another run.*\(other: columns, part\)"):
        distributed.pool(model("sum"), table, out, by="box", engine=ALONE)
    again = distributed.pool(model("std"), table, out, **options)
    assert (again["found_done"], again["sets"], again["members"]) == (2, whole["sets"], 300)
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert not (tmp_path / "out.parquet.parts").exists()


def test_a_crash_between_moves_of_a_folder_is_taken_up(tmp_path, monkeypatch):
    table, options = shards(rows(300, 12), tmp_path / "t"), {"by": "box", "engine": ALONE}
    monkeypatch.setattr("deepsets.scale.work._put", lambda *_: (_ for _ in ()).throw(RuntimeError("power cut")))
    with pytest.raises(RuntimeError, match="power cut"):
        distributed.predict(model("std"), table, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    monkeypatch.undo()
    assert distributed.predict(model("std"), table, tmp_path / "out", **options)["found_done"] == 1
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["_manifest.json", "part-000000.parquet"]
    with pytest.raises(ValueError, match="out exists: choose another path, or --overwrite"):
        distributed.predict(model("std"), table, tmp_path / "out", **options)
    distributed.predict(model("max"), table, tmp_path / "out", **options, overwrite=True)


def test_a_crash_after_the_output_stands_harms_nothing(tmp_path, monkeypatch):
    table, options = shards(rows(300, 12), tmp_path / "t"), {"by": "box", "engine": ALONE}
    for name in ("out", "out.parquet"):
        monkeypatch.setattr("deepsets.scale.work.shutil.rmtree", lambda *_, **__: None)  # killed before the parts go
        distributed.pool(model("std"), table, tmp_path / name, **options)
        monkeypatch.undo()
        assert (tmp_path / f"{name}.parts").exists()
        first = sorted(path.name for path in (tmp_path / name).glob("*"))
        assert distributed.pool(model("std"), table, tmp_path / name, **options, overwrite=True)["found_done"] == 1
        assert sorted(path.name for path in (tmp_path / name).glob("*")) == first
        assert not (tmp_path / f"{name}.parts").exists()
    assert (tmp_path / "out" / "part-000000.parquet").read_bytes() == (tmp_path / "out.parquet").read_bytes()


def test_workers_killed_in_the_middle_are_replaced_and_the_states_are_the_same(tmp_path):
    table = shards(rows(2000, 40), tmp_path / "t", group=50)
    options = {"by": "box", "part_size": 50}
    distributed.pool(model(["max", "std"]), table, tmp_path / "alone.parquet", engine=ALONE, **options)
    killed = []

    def kill(_):
        child = next(iter(multiprocessing.active_children()), None)
        if child is not None and len(killed) < 3:
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            killed.append(child.pid)

    engine = distributed.Engine(workers=2)
    facts = distributed.pool(model(["max", "std"]), table, tmp_path / "o.parquet", engine=engine, progress=kill, **options)
    assert len(killed) == 3 and facts["members"] == 2000
    assert (tmp_path / "o.parquet").read_bytes() == (tmp_path / "alone.parquet").read_bytes()


def test_a_part_that_kills_every_worker_ends_the_run():
    said = "died 5 times without finishing one of the 2 parts"
    with pytest.raises(RuntimeError, match=said), distributed.Engine(workers=2).open() as crew:
        list(crew.run(partial, (os._exit,), [1, 2]))
