"""The engine ray: the same numbers as in memory, also when a worker is killed or a machine is lost."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import deepsets
from deepsets import distributed

pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
ray = pytest.importorskip("ray", reason="the engine ray needs the extra [ray]")

from deepsets.estimators import MemberRegressor, SetRegressor  # noqa: E402
from deepsets.expand import NearestVectors  # noqa: E402
from tests.deepsets.distributed.test_candidates import KNOWN, files, items  # noqa: E402
from tests.deepsets.distributed.test_distributed import ALONE, close, in_memory, model, rows, shards  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # Ray's own warnings
RAY = distributed.Engine("ray", workers=2)


@pytest.fixture(scope="module")
def two_nodes():
    """A cluster of two machines, both on this one."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_worker_niceness"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    other = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster, other
    ray.shutdown()
    cluster.shutdown()


def test_predict_pool_and_expand(two_nodes, tmp_path):
    net, frame = model(["sum", "std"], size=True), rows(600, 20)
    table = shards(frame, tmp_path / "t", [200], group=50)
    facts = distributed.predict(
        net, table, tmp_path / "o.parquet", by="box", engine=RAY, progress=threading.Semaphore().release
    )
    assert facts["sets"] == 20
    close(pd.read_parquet(tmp_path / "o.parquet"), in_memory(net, frame))
    distributed.pool(net, table / "0.parquet", tmp_path / "states", by="box", engine=RAY)
    options = {"by": "box", "merge": tmp_path / "states", "engine": RAY}
    distributed.pool(net, table / "1.parquet", tmp_path / "both.parquet", **options)
    distributed.predict(net, tmp_path / "both.parquet", tmp_path / "p.parquet", engine=ALONE)
    close(pd.read_parquet(tmp_path / "p.parquet"), in_memory(net, frame))
    options = {"by": "box", "merge": tmp_path / "both.parquet", "remove": True, "engine": RAY}
    distributed.pool(net, table / "1.parquet", tmp_path / "first.parquet", **options)
    distributed.predict(net, tmp_path / "first.parquet", tmp_path / "q.parquet", engine=RAY)
    close(pd.read_parquet(tmp_path / "q.parquet"), in_memory(net, frame[:200]))
    expander = NearestVectors(components=0).fit(items=KNOWN)
    candidates = files([f"new{i}" for i in range(50)], items(50)[1], tmp_path / "c", [20])
    found = distributed.expand(expander, ["c1", "c2"], candidates, 4, element="name", engine=RAY)
    assert found == distributed.expand(expander, ["c1", "c2"], candidates, 4, element="name", engine=ALONE)


def test_whole_sets_and_errors(two_nodes, tmp_path):
    frame = rows(90, 6).sort_values("box", kind="stable", ignore_index=True)
    fitted = MemberRegressor(by="box", epochs=1, random_state=0).fit(frame, frame["x0"].to_numpy())
    table = shards(frame, tmp_path / "t", [int((frame["box"] == "b0").sum())])
    for engine, name in ((RAY, "ray"), (ALONE, "local")):
        distributed.predict(fitted, table, tmp_path / f"{name}.parquet", engine=engine)
    found, wanted = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("ray", "local"))
    columns = ["box", "member"]
    pd.testing.assert_frame_equal(found.sort_values(columns, ignore_index=True), wanted, rtol=1e-5)
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=r"engines ray and spark read Parquet; found .*t.csv"):
        distributed.pool(model("sum"), tmp_path / "t.csv", tmp_path / "b.parquet", by="box", engine=RAY)
    frame.loc[80, "x1"] = float("nan")
    with pytest.raises(ValueError, match=r"the first is 'x1' of set"):  # the message, without the trace of the cluster
        bad = shards(frame, tmp_path / "bad", [30])
        distributed.pool(model("sum"), bad, tmp_path / "b.parquet", by="box", engine=RAY)


def test_the_command_with_one_cpu(tmp_path):
    frame = rows(300, 9)
    table = shards(frame, tmp_path / "t", [100])
    fitted = SetRegressor(by="box", epochs=1, n_estimators=1, random_state=0).fit(
        frame, frame["box"].str[1:].astype(int)
    )
    deepsets.save(fitted, tmp_path / "m")
    distributed.pool(fitted, table, tmp_path / "wanted.parquet", engine=ALONE)
    command = ["pool", "m", "t", "-o", "s.parquet", "--engine", "ray", "--workers", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "deepsets", *command], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout)["sets"] == 9
    found, wanted = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("s", "wanted"))
    assert found.columns.tolist() == wanted.columns.tolist() and found["box"].tolist() == wanted["box"].tolist()
    for name in wanted.columns[1:]:
        np.testing.assert_allclose(np.stack(found[name]), np.stack(wanted[name]), rtol=1e-9, atol=1e-9)


def test_a_killed_worker_and_a_lost_machine(two_nodes, tmp_path):
    cluster, other = two_nodes
    net, frame = model(["max", "std"]), rows(20_000, 40)
    table = shards(frame, tmp_path / "t", range(1000, 20_000, 1000), group=200)
    hits = []

    def trouble():
        hits.append(_worker(cluster))
        os.kill(hits[0], signal.SIGKILL)
        time.sleep(1)
        cluster.remove_node(other, allow_graceful=False)
        hits.append("node")

    thread = threading.Thread(target=trouble)
    thread.start()
    distributed.pool(net, table, tmp_path / "s.parquet", by="box", engine=RAY)
    thread.join()
    assert len(hits) == 2
    assert pd.read_parquet(tmp_path / "s.parquet")["members"].sum() == 20_000  # no row is lost or counted twice
    distributed.predict(net, tmp_path / "s.parquet", tmp_path / "o.parquet", engine=ALONE)
    close(pd.read_parquet(tmp_path / "o.parquet"), in_memory(net, frame))


def _worker(cluster) -> int:
    """A process of this cluster that works on a task."""
    raylets = {str(node.all_processes["raylet"][0].process.pid) for node in cluster.list_all_nodes()}
    for _ in range(3000):
        listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
        for pid, parent, *words in map(str.split, listed.splitlines()[1:]):
            if parent in raylets and "MapBatches" in " ".join(words):
                return int(pid)
        time.sleep(0.1)
    raise AssertionError("no worker found")
