"""The training loop: its batches, its exactness, its checkpoints, its errors."""

import json
import math
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from deepsets import Sets, nn
from deepsets.train import Batch, CheckpointError, TrainingError, balanced, evaluate, split_rows, train
from deepsets.train.batches import part_of, pieces
from deepsets.train.schedule import Rate
from tests.deepsets.train import two_processes

HERE = Path(__file__).parent
sizes_of_sets = st.lists(st.one_of(st.integers(0, 9), st.sampled_from([0, 1, 1000, 5000])), min_size=1, max_size=60)


def data(count: int = 40, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    sets = Sets.from_list([torch.randn(1 + b % 7, 3, generator=generator) for b in range(count)])
    return Batch(sets, torch.randn(count, 1, generator=generator))


def model(dropout: float = 0.0, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    torch.manual_seed(1)
    return nn.DeepSet(nn.mlp(3, 8, 8, dropout=dropout), nn.mlp(8, 8, 1), pool="mean").to(dtype)


def loss(model, batch):
    return F.mse_loss(model(batch.sets), batch.y, reduction="sum"), len(batch.sets)


def fitted(net: torch.nn.Module | None = None, what: Batch | None = None, **options):
    """A small training: the model and its history."""
    net = model() if net is None else net
    history = train(net, loss, data() if what is None else what, **{"epochs": 2, "batch_size": 10, **options})
    return net, history


def assert_same(a: torch.nn.Module, b: torch.nn.Module) -> None:
    for name, tensor in a.state_dict().items():
        assert torch.equal(tensor, b.state_dict()[name]), name


# ------------------------------------------------------------------------------------------------------- batches


@given(sizes_of_sets, st.integers(1, 20), st.integers(0, 3))
def test_every_set_comes_once_an_epoch_and_no_batch_is_empty(sizes, batch_size, epoch):
    batches = balanced(np.array(sizes), batch_size, seed=0, epoch=epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(sizes)))
    assert all(len(batch) for batch in batches)
    assert len(batches) <= -(-len(sizes) // batch_size)


@given(sizes_of_sets, st.integers(1, 20))
def test_no_batch_has_more_than_its_share_of_elements_and_one_set(sizes, batch_size):
    cost = np.array(sizes) + 1
    share = cost.sum() / -(-len(sizes) // batch_size)
    for batch in balanced(np.array(sizes), batch_size, seed=1, epoch=0):
        assert cost[batch].sum() <= share + cost.max()


def test_batches_of_sets_of_one_size_are_equal():
    assert [len(b) for b in balanced(np.full(64, 7), 16, seed=0, epoch=0)] == [16] * 4


def test_batches_follow_from_seed_and_epoch_alone():
    sizes = np.arange(50)

    def order(**at):
        return np.concatenate(balanced(sizes, 8, **at)).tolist()

    first = order(seed=3, epoch=5)
    np.random.default_rng(0).random()
    assert order(seed=3, epoch=5) == first
    assert order(seed=3, epoch=6) != first
    assert order(seed=4, epoch=5) != first


@given(sizes_of_sets, st.integers(1, 4))
def test_processes_share_a_batch_without_loss_and_evenly(sizes, world):
    sizes, batch = np.array(sizes), np.arange(len(sizes))
    parts = [part_of(batch, sizes, rank, world) for rank in range(world)]
    assert sorted(np.concatenate(parts).tolist()) == batch.tolist()
    loads = [(sizes[part] + 1).sum() for part in parts]
    assert max(loads) - min(loads) <= sizes.max() + 1


@given(sizes_of_sets, st.integers(1, 2000))
def test_micro_batches_are_the_batch_cut_in_pieces(sizes, most):
    sizes, batch = np.array(sizes), np.arange(len(sizes))
    cut = pieces(batch, sizes, most)
    assert np.concatenate(cut).tolist() == batch.tolist()
    assert all(sizes[piece].sum() <= most + sizes.max() for piece in cut)
    assert pieces(batch[:0], sizes, most) == []


@given(st.integers(1, 200), st.floats(0, 0.9))
def test_a_validation_split_holds_whole_sets(count, share):
    rows, held = split_rows(count, share, seed=0)
    assert sorted([*rows, *held]) == list(range(count))
    assert len(held) == round(count * share)


# ----------------------------------------------------------------------------------------------- rates, clipping


def test_cosine_rises_in_the_warm_up_and_falls_to_nothing():
    rate = Rate("cosine", warmup=0.2)
    assert rate(0.1) == pytest.approx(0.5)
    assert rate(0.2) == pytest.approx(1)
    assert rate(0.6) == pytest.approx(0.5)
    assert rate(1.0) == pytest.approx(0)


def test_plateau_halves_after_epochs_without_a_better_loss():
    rate = Rate("plateau", warmup=0.0, patience=2)
    for value in (1.0, 0.5, 0.6, 0.7, 0.4, 0.9):
        rate.after_epoch(value)
    assert rate(0.5) == 0.5
    rate.after_epoch(0.8)
    assert rate(0.9) == 0.25


def test_the_log_shows_the_rate_of_the_schedule():
    _, constant = fitted(schedule="constant", warmup=0.0, learning_rate=0.02)
    _, cosine = fitted(schedule="cosine", warmup=0.0, learning_rate=0.02)
    assert [row["rate"] for row in constant] == [0.02, 0.02]
    assert 0.02 > cosine[0]["rate"] > cosine[1]["rate"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "linear"}, r"unknown schedule 'linear'; known are cosine, constant, plateau"),
        ({"warmup": 1.0}, r"warmup is a share of the training, in \[0, 1\); found 1.0"),
    ],
)
def test_wrong_schedules_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fitted(**options)


def test_clipping_shortens_long_gradients_and_leaves_short_ones():
    def steps(clip):
        rate = {"optimizer": lambda ps: torch.optim.SGD(ps, 1.0), "warmup": 0.0, "schedule": "constant"}
        net, _ = fitted(clip=clip, epochs=1, batch_size=40, **rate)
        vector = torch.nn.utils.parameters_to_vector
        return (vector(net.parameters()) - vector(model().parameters())).detach()

    free = steps(None)
    assert float(free.norm()) > 0.1
    torch.testing.assert_close(steps(0.05), free * 0.05 / free.norm(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(steps(100.0), free)


# --------------------------------------------------------------------------------------------- what is computed


def test_training_lowers_the_loss():
    _, history = fitted(epochs=30, learning_rate=0.02)
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]


@pytest.mark.parametrize("micro", [1, 7, 50])
def test_micro_batches_give_the_weights_of_whole_batches(micro):
    what = data()
    what = Batch(what.sets.to(dtype=torch.float64), what.y.double())
    whole, _ = fitted(model(dtype=torch.float64), what, micro_elements=None)
    small, _ = fitted(model(dtype=torch.float64), what, micro_elements=micro)
    for a, b in zip(whole.parameters(), small.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-9, atol=1e-12)


def test_a_subset_of_every_set_is_seen_and_another_one_at_each_step():
    seen = []

    def watch(model, batch):
        seen.append(batch.sets)
        return loss(model, batch)

    what = Batch(Sets.from_list([torch.randn(50, 3) for _ in range(4)]), torch.randn(4, 1))
    train(model(), watch, what, epochs=3, batch_size=4, subset=8)
    assert all(sets.sizes.tolist() == [8] * 4 for sets in seen)
    everything = {tuple(row) for row in what.sets.values.tolist()}
    drawn = [{tuple(row) for row in sets.values.tolist()} for sets in seen]
    assert all(rows < everything for rows in drawn)
    assert drawn[0] != drawn[1] != drawn[2]


def test_early_stopping_puts_the_best_weights_back():
    held = data(20, seed=5)
    net, history = fitted(model(), validation=held, patience=3, epochs=60, learning_rate=0.05, schedule="constant")
    scores = [row["validation"] for row in history]
    assert len(history) < 60
    assert scores.index(min(scores)) == len(scores) - 4
    assert evaluate(net, loss, held) == pytest.approx(min(scores), rel=1e-6)


def test_a_validation_without_labels_is_an_error():
    with pytest.raises(ValueError, match="none of the 5 sets to be evaluated has a label"):
        evaluate(model(), lambda model, batch: (model(batch.sets).sum() * 0, 0), data(5))


def test_the_mode_of_the_model_survives_an_evaluation():
    net = model(dropout=0.5).train()
    assert evaluate(net, loss, data()) == evaluate(net, loss, data(), batch_size=40)
    assert net.training


def test_losses_are_means_even_for_tiny_weights():
    def weighed(model, batch):
        return (loss(model, batch)[0] * 1e-3, len(batch.sets) * 1e-3)

    history = train(model(), weighed, data(), epochs=1, batch_size=40, validation=data())
    _, plain = fitted(epochs=1, batch_size=40, validation=data())
    assert history[0]["loss"] == pytest.approx(plain[0]["loss"], rel=1e-5)
    assert history[0]["validation"] == pytest.approx(plain[0]["validation"], rel=1e-5)


def test_a_batch_without_labels_changes_nothing():
    net = model()
    train(net, lambda model, batch: (model(batch.sets).sum() * 0, 0), data(), epochs=2)
    assert_same(net, model())


def test_the_same_seed_gives_the_same_weights_and_another_one_others():
    a, b, c = (fitted(model(dropout=0.3), seed=seed)[0] for seed in (7, 7, 8))
    assert_same(a, b)
    assert not torch.equal(next(a.parameters()), next(c.parameters()))


def test_the_global_generators_are_left_as_they_were():
    net, held = model(dropout=0.3), data(8)
    torch.manual_seed(11)
    np.random.seed(11)  # noqa: NPY002
    random.seed(11)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    fitted(net, validation=held, subset=2)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert random.getstate() == before[2]


def test_no_sets_are_an_error():
    with pytest.raises(ValueError, match="there are no sets to train on"):
        train(model(), loss, data().take(np.zeros(0, dtype=int)))


# ----------------------------------------------------------------------------------------- log, progress, memory


def test_the_log_has_a_line_an_epoch(tmp_path):
    _, history = fitted(checkpoint_dir=tmp_path / "new" / "run", validation=data(8))
    lines = [json.loads(line) for line in (tmp_path / "new" / "run" / "log.jsonl").read_text().splitlines()]
    assert lines == history
    assert [sorted(line) for line in lines] == [["epoch", "loss", "rate", "seconds", "validation"]] * 2


def test_a_log_without_its_checkpoint_is_begun_anew(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"epoch": 0, "loss": 1.0}\n{"epoch": 1, "lo')
    fitted(checkpoint_dir=tmp_path)
    assert [json.loads(line)["epoch"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [0, 1]


def test_progress_is_shown_when_asked_for_and_only_then(capsys):
    fitted(progress=False)
    fitted(progress=None)  # no terminal here
    assert capsys.readouterr().err == ""
    fitted(progress=True, validation=data(8))
    shown = capsys.readouterr().err
    assert "2/2" in shown
    assert "loss=" in shown
    assert "validation=" in shown


def test_memory_settings_are_left_alone_when_not_asked_for(monkeypatch):
    called = []
    monkeypatch.setattr("deepsets.train.loop.keep_memory", lambda: called.append(True))
    fitted(reuse_memory=False)
    assert called == []
    fitted(reuse_memory=True)
    assert called == [True]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into glibc")
def test_importing_the_library_changes_no_malloc_setting():
    code = """
import ctypes
import deepsets, deepsets.train
libc = ctypes.CDLL(None)
class Info(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in ("arena", "free", "fast", "maps", "hblkhd", "a", "b", "c", "d", "e")]
libc.mallinfo2.restype = Info
libc.malloc.restype = ctypes.c_void_p
def mapped():
    before = libc.mallinfo2().hblkhd
    libc.malloc(ctypes.c_size_t(64 << 20))
    return libc.mallinfo2().hblkhd - before >= 64 << 20
first = mapped()  # by default glibc maps 64 MB of their own, and gives them back at the free
print(first, deepsets.train.keep_memory(), mapped())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["True", "True", "False"]


# -------------------------------------------------------------------------------------- checkpoints and failures


def failing(at: int, how):
    """A loss that does something else at its n-th call in training."""
    calls = 0

    def wrapped(model, batch):
        nonlocal calls
        calls += model.training
        total, count = loss(model, batch)
        return (how(total) if calls == at else total), count

    return wrapped


@pytest.mark.parametrize("clip", [1.0, None])
@pytest.mark.parametrize(
    ("how", "said"),
    [
        (lambda total: total * math.nan, "the loss became nan in epoch 1, step 2"),
        (lambda total: total + torch.sqrt(total * 0), "the length of the gradient became nan in epoch 1, step 2"),
    ],
)
def test_a_loss_that_is_no_number_stops_with_epoch_and_step_and_keeps_the_checkpoint(tmp_path, how, said, clip):
    net, path = model(), tmp_path / "checkpoint.safetensors"
    options = {"epochs": 3, "batch_size": 10, "folder": tmp_path, "checkpoint_seconds": 0, "clip": clip}
    with pytest.raises(TrainingError, match=rf"{said}.*[\s\S]*last good checkpoint is kept in .*checkpoint"):
        train(net, failing(4 + 3, how), data(), **options)
    assert all(bool(p.isfinite().all()) for p in net.parameters())
    assert all(bool(t.isfinite().all()) for t in load_file(path).values())
    again, _ = fitted(model(), **options)  # the loss behaves now: training goes on from where it stood
    whole, _ = fitted(model(), **{**options, "folder": None})
    assert_same(again, whole)


def test_ctrl_c_ends_the_step_and_leaves_a_checkpoint_to_go_on_from(tmp_path):
    handler = signal.getsignal(signal.SIGINT)

    def interrupt(total):
        signal.raise_signal(signal.SIGINT)
        return total

    options = {"epochs": 3, "batch_size": 10, "folder": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        train(model(dropout=0.3), failing(6, interrupt), data(), **options)
    assert signal.getsignal(signal.SIGINT) is handler
    assert [p.name for p in tmp_path.iterdir() if p.suffix != ".jsonl"] == ["checkpoint.safetensors"]
    again, _ = fitted(model(dropout=0.3), **options)
    whole, _ = fitted(model(dropout=0.3), **{**options, "folder": None})
    assert_same(again, whole)


def test_ctrl_c_in_the_last_validation_is_not_lost():
    def interrupted(model, batch):
        if not model.training:
            signal.raise_signal(signal.SIGINT)
        return loss(model, batch)

    with pytest.raises(KeyboardInterrupt):
        train(model(), interrupted, data(), epochs=1, validation=data(8))


@pytest.fixture(scope="module")
def restarts(tmp_path_factory):
    """What restarts.py found."""
    command = [sys.executable, "-W", "ignore", str(HERE / "restarts.py"), str(tmp_path_factory.mktemp("restarts"))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240, env=environment)
    return json.loads(done.stdout)


@pytest.mark.parametrize("variant", ["dropout", "early stopping"])
def test_killed_five_times_the_final_weights_are_those_of_an_uninterrupted_run(restarts, variant):
    found = restarts[variant]
    assert found["endings"] == [-signal.SIGKILL] * 5
    assert found["identical"]
    assert found["again"]  # and a finished training is not trained further
    assert found["files"] == ["checkpoint.safetensors", "log.jsonl"]
    assert found["epochs"] == list(range(len(found["epochs"])))  # no epoch twice


def test_ctrl_c_from_outside_leaves_a_usable_checkpoint(restarts):
    assert restarts["ctrl-c"] == {
        "ending": 1,
        "files": ["checkpoint.safetensors", "log.jsonl"],
        "identical": True,
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, r"it has seed 0, here 1"),
        ({"epochs": 3}, r"epochs 2, here 3"),
        ({"learning_rate": 0.5}, r"rates \[0.001\], here \[0.5\]"),
        ({"what": data(40, seed=9)}, r"data '\w+', here '\w+'"),
        ({"net": nn.DeepSet(nn.mlp(3, 9, 8), nn.mlp(8, 8, 1))}, r"weights 'phi\S*' of shape \(8, 3\), here \(9, 3\)"),
    ],
)
def test_the_checkpoint_of_another_training_is_refused(tmp_path, change, message):
    fitted(checkpoint_dir=tmp_path)
    before = (tmp_path / "checkpoint.safetensors").read_bytes(), (tmp_path / "log.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match=rf"belongs to another training: .*{message}.*Choose another folder"):
        fitted(checkpoint_dir=tmp_path, **change)
    assert before == ((tmp_path / "checkpoint.safetensors").read_bytes(), (tmp_path / "log.jsonl").read_bytes())


def test_damaged_and_foreign_checkpoints_are_refused(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    fitted(checkpoint_dir=tmp_path)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:20], b"", b"not a checkpoint at all"):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"cannot be read as a checkpoint, it may be cut short or damaged"):
            fitted(checkpoint_dir=tmp_path)
        assert path.read_bytes() == content
    save_file({"weight": torch.ones(3)}, path)
    with pytest.raises(CheckpointError, match=r"is not a checkpoint of this library: found format None"):
        fitted(checkpoint_dir=tmp_path)


def test_a_failed_save_leaves_the_old_checkpoint_and_no_temporary_file(tmp_path, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError("no space left on device")

    options = {"epochs": 3, "batch_size": 10, "folder": tmp_path, "checkpoint_seconds": 0}
    monkeypatch.setattr("deepsets.train.checkpoint.os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        fitted(**options)
    assert [p.name for p in tmp_path.iterdir()] == ["log.jsonl"]


# ------------------------------------------------------------------------------------------------ several processes


@pytest.fixture(scope="module")
def torchrun(tmp_path_factory):
    """Where two processes wrote their weights and gradients."""
    folder = tmp_path_factory.mktemp("torchrun")
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *run, str(HERE / "two_processes.py"), str(folder)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
    }
    subprocess.run(command, check=True, capture_output=True, timeout=240, env=environment)
    return folder


@pytest.mark.parametrize("name", two_processes.CASES)
def test_two_processes_give_the_gradients_and_weights_of_one(torchrun, name):
    wanted = two_processes.trained(**two_processes.CASES[name])
    found = load_file(torchrun / f"{name}.safetensors")
    assert found.keys() == wanted.keys()
    assert any(key.startswith("gradient of inner") for key in found)
    for key, tensor in wanted.items():
        scale = 1e-6 * float(tensor.abs().max())
        torch.testing.assert_close(found[key], tensor, rtol=0, atol=max(scale, 1e-12), msg=lambda m, k=key: f"{k}: {m}")
    assert torch.equal(found["spare"], torch.ones(4))
