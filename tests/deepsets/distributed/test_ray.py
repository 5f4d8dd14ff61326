"""The engine ray: the same numbers as the one inside, also when an actor is killed or a machine is lost."""

import os
import signal
import subprocess
import time

import pytest

from deepsets import distributed

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")
ray = pytest.importorskip("ray", reason="the engine ray needs the extra [ray]")

from tests.deepsets.distributed.test_distributed import ALONE, model, rows, shards  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture(scope="module")
def two_nodes():
    """A cluster of two machines, both on this one."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    other = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster, other
    ray.shutdown()
    cluster.shutdown()


def test_ray_gives_the_same_bytes_and_survives_the_loss_of_actors_and_of_a_machine(two_nodes, tmp_path):
    cluster, other = two_nodes
    table = shards(rows(3000, 40), tmp_path / "t", group=50)
    options = {"by": "box", "part_size": 50}
    distributed.pool(model(["max", "std"]), table, tmp_path / "alone.parquet", engine=ALONE, **options)
    hit = []

    def trouble(_):
        if len(hit) == 0:
            hit.append(_actor(cluster))
            os.kill(hit[0], signal.SIGKILL)
        elif len(hit) == 1:
            cluster.remove_node(other, allow_graceful=False)
            hit.append("node")

    engine = distributed.Engine("ray", workers=2)
    facts = distributed.pool(model(["max", "std"]), table, tmp_path / "o.parquet", engine=engine, progress=trouble, **options)
    assert len(hit) == 2 and (facts["sets"], facts["members"]) == (40, 3000)
    assert (tmp_path / "o.parquet").read_bytes() == (tmp_path / "alone.parquet").read_bytes()
    frame = rows(20, 3)
    frame.loc[3, "x1"] = float("nan")
    with pytest.raises(ValueError, match=r"the first is 'x1' of set"):  # the sentence comes through the cluster
        distributed.pool(model("sum"), shards(frame, tmp_path / "bad"), tmp_path / "b.parquet", by="box", engine=engine)


def _actor(cluster) -> int:
    """The process of an actor of this cluster."""
    raylets = {str(node.all_processes["raylet"][0].process.pid) for node in cluster.list_all_nodes()}
    for _ in range(100):
        listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
        for pid, parent, *words in map(str.split, listed.splitlines()[1:]):
            if parent in raylets and "MapWorker" in " ".join(words):
                return int(pid)
        time.sleep(0.1)
    raise AssertionError("no actor found")
