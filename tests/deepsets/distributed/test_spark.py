"""The engine spark in local mode: the same numbers as in memory, also when a worker is killed."""

import os
import shutil
import signal
import subprocess
import threading
import time

import pytest

from deepsets import distributed

pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pyspark = pytest.importorskip("pyspark", minversion="4", reason="the engine spark needs the extra [spark]")
if shutil.which("java") is None:
    pytest.skip("the engine spark needs a Java runtime", allow_module_level=True)

from deepsets.estimators import MemberRegressor  # noqa: E402
from deepsets.expand import NearestVectors  # noqa: E402
from tests.deepsets.distributed.test_candidates import KNOWN, files, items  # noqa: E402
from tests.deepsets.distributed.test_distributed import ALONE, close, in_memory, model, rows, shards  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # Spark's own warnings
SPARK = distributed.Engine("spark", workers=2)


@pytest.fixture(scope="module", autouse=True)
def session():
    """One session for all tests, as the engine starts it."""
    from deepsets.distributed.spark import Spark

    with Spark(2)._session(False) as spark:
        yield spark


def test_predict_pool_and_expand(tmp_path):
    net, frame = model(["sum", "std"], size=True), rows(600, 20)
    table = shards(frame, tmp_path / "t", [200], group=50)
    facts = distributed.predict(
        net,
        table,
        tmp_path / "o.parquet",
        by="box",
        engine=SPARK,
        part_size=150,
        progress=threading.Semaphore().release,
    )
    assert facts["sets"] == 20
    close(pd.read_parquet(tmp_path / "o.parquet"), in_memory(net, frame))
    distributed.pool(net, table / "0.parquet", tmp_path / "states", by="box", engine=SPARK)
    options = {"by": "box", "merge": tmp_path / "states", "engine": SPARK}
    distributed.pool(net, table / "1.parquet", tmp_path / "both.parquet", **options)
    distributed.predict(net, tmp_path / "both.parquet", tmp_path / "p.parquet", engine=SPARK)
    close(pd.read_parquet(tmp_path / "p.parquet").sort_values("box", ignore_index=True), in_memory(net, frame))
    expander = NearestVectors(components=0).fit(items=KNOWN)
    candidates = files([f"new{i}" for i in range(50)], items(50)[1], tmp_path / "c", [20])
    found = distributed.expand(expander, ["c1", "c2"], candidates, 4, element="name", engine=SPARK)
    assert found == distributed.expand(expander, ["c1", "c2"], candidates, 4, element="name", engine=ALONE)


def test_whole_sets_and_errors(tmp_path):
    frame = rows(90, 6).sort_values("box", kind="stable", ignore_index=True)
    fitted = MemberRegressor(by="box", epochs=1, random_state=0).fit(frame, frame["x0"].to_numpy())
    table = shards(frame, tmp_path / "t", [int((frame["box"] == "b0").sum())])
    for engine, name in ((SPARK, "spark"), (ALONE, "local")):
        distributed.predict(fitted, table, tmp_path / f"{name}.parquet", engine=engine)
    found, wanted = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("spark", "local"))
    columns = ["box", "member"]
    pd.testing.assert_frame_equal(found.sort_values(columns, ignore_index=True), wanted, rtol=1e-5)
    frame.loc[80, "x1"] = float("nan")
    bad = shards(frame, tmp_path / "bad", [30])
    with pytest.raises(ValueError, match=r"the first is 'x1' of set"):  # the message, without the trace of the cluster
        distributed.pool(model("sum"), bad, tmp_path / "b.parquet", by="box", engine=SPARK)
    assert not list(tmp_path.glob("b.parquet*"))


def test_a_killed_worker(tmp_path):
    net, frame = model(["max", "std"]), rows(20_000, 40)
    table = shards(frame, tmp_path / "t", range(1000, 20_000, 1000), group=200)
    killed = []

    def kill():
        while not killed:
            listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
            lines = [line.split(maxsplit=2) for line in listed.splitlines()[1:]]
            below, found = {str(os.getpid())}, []  # other Spark sessions of this machine are left alone
            for pid, parent, words in sorted(lines, key=lambda line: int(line[0])):
                if parent in below:
                    below.add(pid)
                    found += [(pid, parent)] if "pyspark.daemon" in words else []
            daemons = {pid for pid, _ in found}
            workers = [pid for pid, parent in found if parent in daemons]
            if workers:
                os.kill(int(workers[0]), signal.SIGKILL)
                killed.append(workers[0])
            time.sleep(0.02)

    thread = threading.Thread(target=kill)
    thread.start()
    distributed.pool(net, table, tmp_path / "s.parquet", by="box", engine=SPARK, part_size=1000)
    thread.join()
    assert pd.read_parquet(tmp_path / "s.parquet")["members"].sum() == 20_000  # no row is lost or counted twice
    distributed.predict(net, tmp_path / "s.parquet", tmp_path / "o.parquet", engine=ALONE)
    close(pd.read_parquet(tmp_path / "o.parquet"), in_memory(net, frame))
