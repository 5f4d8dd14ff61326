"""Training on shards: every set once an epoch and never cut, equal steps, exact resume, two processes like one."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from deepsets import distributed as scale
from deepsets.train import CheckpointError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from tests.deepsets.distributed.shards_two_processes import trained  # noqa: E402  # needs pyarrow


def write(sizes, folder: Path, cuts=(), group=7) -> Path:
    """Sets whose members all hold the number of their set, which is the target too."""
    folder.mkdir()
    edges = [0, *sorted(cuts), len(sizes)]
    for number, start in enumerate(edges[:-1]):
        ids = np.repeat(np.arange(start, edges[number + 1]), sizes[start : edges[number + 1]])
        x = np.random.default_rng(number).normal(size=len(ids))
        table = pa.table({"box": ids, "x": x, "n": ids.astype(float), "y": ids.astype(float)})
        pq.write_table(table, folder / f"{number}.parquet", group)
    return folder


@settings(max_examples=15)
@given(
    st.lists(st.integers(1, 25), min_size=1, max_size=30),
    st.lists(st.integers(0, 30), max_size=3),
    st.integers(1, 12),
    st.integers(1, 3),
    st.integers(1, 9),
)
def test_every_set_comes_once_and_whole_to_one_process(tmp_path_factory, sizes, cuts, group, world, steps):
    cuts = [cut for cut in cuts if cut <= len(sizes)]
    table = write(sizes, tmp_path_factory.mktemp("shards") / "t", cuts, group)
    data = scale.Shards(table, by="box", target=["y"], mix=2)
    seen: list[tuple[int, int]] = []
    for rank in range(world):
        batches = list(data.batches(steps, 0, 1, rank, world))
        assert len(batches) == steps  # as many for every process
        for batch in batches:
            if batch is not None:
                assert torch.equal(batch.sets.values[:, 1], batch.sets.broadcast(batch.y)[:, 0])
                seen += zip(batch.y[:, 0].int().tolist(), batch.sets.sizes.tolist(), strict=True)
    assert sorted(seen) == list(enumerate(sizes))


def test_batches_have_about_equally_many_members_and_another_order_in_each_epoch(tmp_path):
    data = scale.Shards(write([5] * 200, tmp_path / "t", [80], group=50), by="box", target=["y"])
    first, second = (list(data.batches(10, 0, epoch)) for epoch in (0, 1))
    assert all(80 <= batch.sets.total <= 120 for batch in first)
    assert not torch.equal(first[0].y, second[0].y)


def test_an_interrupted_training_ends_with_the_same_weights(tmp_path):
    table = write(np.random.default_rng(0).integers(1, 9, 60), tmp_path / "t", [20], group=30)
    options = {"epochs": 3, "batch_members": 40, "dropout": 0.2}
    whole = trained(table, **options)
    with pytest.raises(RuntimeError, match="the power is cut"):
        trained(table, tmp_path / "run", stop_at=10, checkpoint_seconds=0.0, **options)
    resumed = trained(table, tmp_path / "run", **options)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    with pytest.raises(CheckpointError, match="belongs to another training: it has steps"):
        trained(table, tmp_path / "run", epochs=3, batch_members=60, dropout=0.2)


def test_two_processes_make_the_step_of_one(tmp_path):
    table = write(np.random.default_rng(0).integers(1, 9, 60), tmp_path / "t", [20], group=30)
    script = Path(__file__).with_name("shards_two_processes.py")
    command = ["torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script), str(table), str(tmp_path)]
    loopback = "lo" if sys.platform == "linux" else "lo0"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": loopback}
    command = [sys.executable, "-m", *command]
    done = subprocess.run(command, check=False, timeout=300, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    alone, found = trained(table, epochs=1, batch_members=100_000), load_file(tmp_path / "one.safetensors")
    for name, weight in alone.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-5, atol=1e-6)


def test_targets_that_change_within_a_set_are_refused(tmp_path):
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"box": [1, 1], "x": [0.0, 1.0], "y": [0.0, 1.0]}), tmp_path / "t" / "0.parquet")
    with pytest.raises(ValueError, match="the target 'y' changes within set 1"):
        next(scale.Shards(tmp_path / "t", by="box", target=["y"]).batches(1, 0, 0))
