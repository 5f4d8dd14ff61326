"""Tables, models, states and outputs in an object store: a real S3 protocol, served on this machine."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from torch.nn import functional as F

import deepsets
from deepsets import distributed, nn
from deepsets.estimators import SetRegressor
from deepsets.expand import NearestVectors
from deepsets.io import storage
from deepsets.train import train

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
moto = pytest.importorskip("moto.server", reason="needs moto[server]")

from tests.deepsets.distributed.test_candidates import KNOWN, files, items  # noqa: E402
from tests.deepsets.distributed.test_distributed import ALONE, close, in_memory, model, rows, run, shards  # noqa: E402


@pytest.fixture(scope="module")
def bucket():
    """The URI of an empty bucket."""
    patch = pytest.MonkeyPatch()
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "DEFAULT_REGION": "us-east-1"}.items():
        patch.setenv(f"AWS_{name}", value)
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    import boto3

    boto3.client("s3").create_bucket(Bucket="sets")
    yield "s3://sets"
    storage._connect.cache_clear()
    server.stop()
    patch.undo()


def upload(folder, uri) -> str:
    system, path = storage.resolve(uri)
    pa.fs.copy_files(str(folder), path, destination_filesystem=system)
    return uri


def test_predict_and_pool(bucket, tmp_path):
    net, frame = model(["sum", "std"], size=True), rows(300, 9)
    table = upload(shards(frame, tmp_path / "rows", [100], group=40), f"{bucket}/rows")
    options = {"by": "box", "engine": ALONE}
    facts = distributed.predict(net, table, f"{bucket}/out.parquet", part_size=60, **options)
    assert (facts["sets"], facts["members"]) == (9, 300) and facts["parts"] > 3
    close(pd.read_parquet(_download(f"{bucket}/out.parquet", tmp_path)), in_memory(net, frame))
    distributed.pool(net, f"{table}/0.parquet", f"{bucket}/states", **options)
    distributed.pool(net, f"{table}/1.parquet", f"{bucket}/both", merge=f"{bucket}/states", **options)
    distributed.predict(net, f"{bucket}/both", f"{bucket}/again.csv", engine=ALONE)
    again = pd.read_csv(_download(f"{bucket}/again.csv", tmp_path)).sort_values("box", ignore_index=True)
    close(again, in_memory(net, frame))
    with pytest.raises(ValueError, match="s3://sets/both exists: choose another path, or --overwrite"):
        distributed.pool(net, table, f"{bucket}/both", **options)
    with pytest.raises(ValueError, match="s3://sets/rows is the input: choose another path for the output"):
        distributed.pool(net, table, f"{bucket}/rows", overwrite=True, **options)
    mine = upload(tmp_path / "rows", f"{bucket}/mine")
    with pytest.raises(ValueError, match="s3://sets/mine exists, and was not written by this package"):
        distributed.pool(net, table, mine, overwrite=True, **options)
    with pytest.raises(ValueError, match="s3://sets/none does not exist"):
        distributed.pool(net, f"{bucket}/none", f"{bucket}/p.parquet", **options)
    with pytest.raises(ValueError, match=r"s3://nobucket/p\.parquet cannot be written"):
        distributed.pool(net, table, "s3://nobucket/p.parquet", **options)


def test_commands(bucket, tmp_path):
    frame = rows(120, 12)
    frame["y"] = frame["box"].str[1:].astype(int) % 3
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    run("fit", tmp_path / "t.parquet", "--by", "box", "--target", "y", "-o", tmp_path / "m", "--json")
    run("predict", tmp_path / "m", tmp_path / "t.parquet", "--scattered", "-o", tmp_path / "here.parquet")
    folder, table = upload(tmp_path / "m", f"{bucket}/m"), upload(tmp_path / "t.parquet", f"{bucket}/t.parquet")
    run("predict", folder, table, "-o", f"{bucket}/there.parquet", "--json")
    there = pd.read_parquet(_download(f"{bucket}/there.parquet", tmp_path))
    pd.testing.assert_frame_equal(there, pd.read_parquet(tmp_path / "here.parquet"))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray", "spark"])
def test_clusters(bucket, tmp_path, engine):
    pytest.importorskip({"ray": "ray", "spark": "pyspark"}[engine], reason=f"the engine {engine} needs its extra")
    if engine == "spark" and shutil.which("java") is None:
        pytest.skip("the engine spark needs a Java runtime")
    frame = rows(300, 9)
    y = frame.groupby("box", sort=False)["x0"].mean().to_numpy()
    fitted = SetRegressor(by="box", model="deep", epochs=1, random_state=0).fit(frame, y)
    deepsets.save(fitted, tmp_path / "m")
    folder, table = upload(tmp_path / "m", f"{bucket}/{engine}-m"), shards(frame, tmp_path / "rows", [100], group=40)
    command = [sys.executable, "-m", "deepsets", "predict", folder, upload(table, f"{bucket}/{engine}-rows")]
    command += ["-o", f"{bucket}/{engine}-out.parquet", "--engine", engine, "--workers", "2", "--json"]
    variables = {**os.environ, "RAY_worker_niceness": "0"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = pd.read_parquet(_download(f"{bucket}/{engine}-out.parquet", tmp_path)).set_index("box")["prediction"]
    np.testing.assert_allclose(found[frame["box"].unique()], fitted.predict(frame), rtol=1e-5)


def test_expand_over_candidates(bucket, tmp_path):
    expander = NearestVectors(components=0).fit(items=KNOWN)
    deepsets.save(expander, tmp_path / "m")
    names, matrix = [f"new{i}" for i in range(50)], items(50)[1]
    table = upload(files(names, matrix, tmp_path / "c", [20]), f"{bucket}/c")
    folder = upload(tmp_path / "m", f"{bucket}/expander")
    common = ["expand", "--model", folder, "c1", "c2", "-k", 3, "--candidates", table, "--element", "name", "--json"]
    found = json.loads(run(*common))["answers"]
    wanted = np.argsort(-expander.score(["c1", "c2"], matrix))[:3]
    assert [answer["element"] for answer in found] == [names[i] for i in wanted]


def test_training_over_shards(bucket, tmp_path):
    frame = rows(200, 30).sort_values("box")
    frame["y"] = frame.groupby("box")["x0"].transform("mean")
    here = shards(frame, tmp_path / "train", [100], group=20)
    weights = []
    for table in (here, upload(here, f"{bucket}/train")):
        data = distributed.Shards(table, by="box", target=["y"], batch_members=50)
        deepsets_model = model("mean")
        net = nn.DeepSet(deepsets_model.phi, nn.mlp(6, 1), pool="mean")
        for parameter in net.parameters():
            parameter.data.fill_(0.1)
        train(net, lambda m, b: (F.mse_loss(m(b.sets), b.y, reduction="sum"), len(b.sets)), data, epochs=1)
        weights.append(net.rho[0].weight.detach().numpy())
    np.testing.assert_array_equal(*weights)


def _download(uri, folder):
    system, path = storage.resolve(uri)
    target = folder / uri.rsplit("/", 1)[1]
    pa.fs.copy_files(path, str(target), source_filesystem=system, destination_filesystem=pa.fs.LocalFileSystem())
    return target
