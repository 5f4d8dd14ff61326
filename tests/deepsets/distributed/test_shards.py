"""Training on shards: every set once per epoch and never divided, equal steps, exact resume, two processes like one."""

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

from deepsets.distributed import Shards
from deepsets.train import BatchSource, CheckpointError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from tests.deepsets.distributed.shards_two_processes import trained  # noqa: E402  # needs pyarrow


def write(sizes, folder: Path, cuts=(), group=7) -> Path:
    """Write sets whose members all hold the number of their set, which is the target too."""
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
    data = Shards(table, by="box", target=["y"], mix=2, batch_members=max(1, sum(sizes) // steps))
    assert isinstance(data, BatchSource)
    seen: list[tuple[int, int]] = []
    for rank in range(world):
        steps, batches = data.epoch(1, seed=0, rank=rank, world=world)
        batches = list(batches)
        assert len(batches) == steps == data.steps  # as many for every process
        for batch in batches:
            if batch is not None:
                assert torch.equal(batch.sets.values[:, 1], batch.sets.broadcast(batch.y)[:, 0])
                seen += zip(batch.y[:, 0].int().tolist(), batch.sets.sizes.tolist(), strict=True)
    assert sorted(seen) == list(enumerate(sizes))


def test_batches_have_about_equally_many_members_and_another_order_in_each_epoch(tmp_path):
    data = Shards(write([5] * 200, tmp_path / "t", [80], group=50), by="box", target=["y"], batch_members=100)
    first, second = (list(data.epoch(epoch, seed=0)[1]) for epoch in (0, 1))
    assert all(80 <= batch.sets.total <= 120 for batch in first)
    assert not torch.equal(first[0].y, second[0].y)


def test_an_interrupted_training_ends_with_the_same_weights(tmp_path):
    table = write(np.random.default_rng(0).integers(1, 9, 60), tmp_path / "t", [20], group=30)
    options = {"epochs": 3, "batch_members": 40, "dropout": 0.2}
    whole = trained(table, **options)
    with pytest.raises(RuntimeError, match="power failure"):
        trained(table, tmp_path / "run", stop_at=10, checkpoint_seconds=0.0, **options)
    resumed = trained(table, tmp_path / "run", **options)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    with pytest.raises(CheckpointError, match=r"belongs to another training: it has steps \d+, here \d+"):
        trained(table, tmp_path / "run", epochs=3, batch_members=60, dropout=0.2)


@pytest.mark.slow
def test_two_processes_make_the_step_of_one(tmp_path):
    table = write(np.random.default_rng(0).integers(1, 9, 60), tmp_path / "t", [20], group=30)
    script = Path(__file__).with_name("shards_two_processes.py")
    command = ["torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script), str(table), str(tmp_path)]
    loopback = "lo" if sys.platform == "linux" else "lo0"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": loopback}
    command = [sys.executable, "-m", *command]
    done = subprocess.run(command, check=False, timeout=300, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "terminate called" not in done.stderr  # both processes ended normally
    alone, found = trained(table, epochs=1, batch_members=100_000), load_file(tmp_path / "one.safetensors")
    for name, weight in alone.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-5, atol=1e-6)


def test_targets_that_change_within_a_set_are_refused(tmp_path):
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"box": [1, 1], "x": [0.0, 1.0], "y": [0.0, 1.0]}), tmp_path / "t" / "0.parquet")
    with pytest.raises(ValueError, match="column 'y' must have one value per set, but it changes within set 1"):
        next(Shards(tmp_path / "t", by="box", target=["y"]).epoch(0, seed=0)[1])


def test_an_epoch_that_is_resumed_continues_with_the_same_batches(tmp_path):
    table = write(np.random.default_rng(0).integers(1, 9, 60), tmp_path / "t", [20], group=30)
    data = Shards(table, by="box", target=["y"], mix=2, batch_members=40)
    whole, rest = (list(data.epoch(3, seed=1, start=start)[1]) for start in (0, 4))
    assert len(rest) == len(whole) - 4
    assert all(torch.equal(a.sets.values, b.sets.values) for a, b in zip(whole[4:], rest, strict=True))


@pytest.mark.parametrize("option", [{"batch_members": 0}, {"mix": 0}])
def test_options_out_of_range_are_refused(tmp_path, option):
    with pytest.raises(ValueError, match="batch_members and mix must be 1 or more; found"):
        Shards(write([2, 3], tmp_path / "t"), by="box", target=["y"], **option)
