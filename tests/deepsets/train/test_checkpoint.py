"""Checkpoints: exact resume, damage, other trainings, locks."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from deepsets import nn
from deepsets.files import FileInUseError, locked
from deepsets.train import CheckpointError, TrainingError, train
from deepsets.train.checkpoint import checkpoint_seed, load, save

from .helpers import assert_same, data, fitted, loss, model, names

HERE = Path(__file__).parent
FILES = ["checkpoint.previous.safetensors", "checkpoint.safetensors", "log.jsonl"]


def failing(at: int, how):
    """A loss that `how` changes at its n-th call in training."""
    calls = 0

    def wrapped(model, batch):
        nonlocal calls
        calls += model.training
        total, count = loss(model, batch)
        return (how(total) if calls == at else total), count

    return wrapped


def power_failure(total):
    raise RuntimeError("power failure")


@pytest.mark.parametrize("clip", [1.0, None])
@pytest.mark.parametrize(
    ("how", "caught"),
    [
        (lambda total: total * math.nan, "the loss became nan in epoch 1, step 2"),
        (lambda total: total + torch.sqrt(total * 0), "the norm of the gradient became nan in epoch 1, step 2"),
    ],
)
def test_a_loss_that_is_not_finite_stops_with_epoch_and_step_and_keeps_the_checkpoint(tmp_path, how, caught, clip):
    net, path = model(), tmp_path / "checkpoint.safetensors"
    options = {"epochs": 3, "batch_size": 10, "checkpoint_dir": tmp_path, "checkpoint_seconds": 0, "clip": clip}
    with pytest.raises(TrainingError, match=rf"{caught}.*[\s\S]*last good checkpoint is kept in "):
        train(net, failing(4 + 3, how), data(), **options)
    assert all(bool(p.isfinite().all()) for p in net.parameters())
    assert all(bool(t.isfinite().all()) for t in load_file(path).values())
    again, _ = fitted(model(), **options)
    whole, _ = fitted(model(), **{**options, "checkpoint_dir": None})
    assert_same(again, whole)


def test_ctrl_c_completes_the_step_and_leaves_a_checkpoint_to_resume(tmp_path):
    handler = signal.getsignal(signal.SIGINT)

    def interrupt(total):
        signal.raise_signal(signal.SIGINT)
        return total

    options = {"epochs": 3, "batch_size": 10, "checkpoint_dir": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        train(model(dropout=0.3), failing(6, interrupt), data(), **options)
    assert signal.getsignal(signal.SIGINT) is handler
    assert names(tmp_path) == ["checkpoint.safetensors", "log.jsonl"]
    again, _ = fitted(model(dropout=0.3), **options)
    whole, _ = fitted(model(dropout=0.3), **{**options, "checkpoint_dir": None})
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
    """Results of restarts.py."""
    command = [sys.executable, "-W", "ignore", str(HERE / "restarts.py"), str(tmp_path_factory.mktemp("restarts"))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240, env=environment)
    return json.loads(done.stdout)


@pytest.mark.parametrize("variant", ["dropout", "early stopping"])
@pytest.mark.slow
def test_killed_five_times_the_final_weights_are_those_of_an_uninterrupted_run(restarts, variant):
    found = restarts[variant]
    assert found["endings"] == [-signal.SIGKILL] * 5
    assert found["identical"]
    assert found["again"]  # and a finished training is not trained further
    assert found["files"] == FILES
    assert found["epochs"] == list(range(len(found["epochs"])))  # no epoch twice


@pytest.mark.slow
def test_ctrl_c_from_outside_leaves_a_usable_checkpoint(restarts):
    assert restarts["ctrl-c"] == {
        "ending": 1,
        "files": FILES,
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
    with pytest.raises(CheckpointError, match=r"is not a checkpoint of this version: found format None, expected"):
        fitted(checkpoint_dir=tmp_path)


def test_a_failed_save_leaves_the_old_checkpoint_and_no_temporary_file(tmp_path, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError("no space left on device")

    options = {"epochs": 3, "batch_size": 10, "checkpoint_dir": tmp_path, "checkpoint_seconds": 0}
    with pytest.raises(RuntimeError, match="power failure"):
        train(model(), failing(6, power_failure), data(), **options)
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space left"):
        patch.setattr("pathlib.Path.write_bytes", full)
        fitted(**options)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before
    assert names(tmp_path) == FILES
    again, _ = fitted(**options)
    assert_same(again, fitted(**{**options, "checkpoint_dir": None})[0])


# ------------------------------------------------------------------------------------------------- damaged files


def interrupted(folder: Path, **options) -> None:
    """A training that stopped in its second epoch, with two checkpoints."""
    with pytest.raises(RuntimeError, match="power failure"):
        options = {"epochs": 3, "batch_size": 10, "checkpoint_dir": folder, "checkpoint_seconds": 0, **options}
        train(model(dropout=0.3), failing(7, power_failure), data(), **options)


@pytest.mark.slow
def test_every_flipped_bit_of_a_checkpoint_is_noticed(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    save(path, {"weight": torch.randn(5, 7), "bias": torch.zeros(3, dtype=torch.float64)}, {"identity": {"seed": 3}})
    content = path.read_bytes()
    places = random.Random(0).sample(range(8 * len(content)), 600)
    places += range(8 * 8)  # the length of the header
    for place in places:
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="checkpoint"):
            load(path)
    path.write_bytes(content)
    assert load(path)[1] == {"identity": {"seed": 3}}


def test_a_damaged_checkpoint_is_replaced_by_the_previous_one_with_a_warning(tmp_path):
    interrupted(tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[-5] ^= 1
    path.write_bytes(damaged)
    options = {"epochs": 3, "batch_size": 10}
    with pytest.warns(UserWarning, match=r"is damaged: .* goes on from the previous checkpoint"):
        again, _ = fitted(model(dropout=0.3), checkpoint_dir=tmp_path, **options)
    assert_same(again, fitted(model(dropout=0.3), **options)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(model(dropout=0.3), checkpoint_dir=tmp_path, **options)


def test_a_damaged_checkpoint_never_takes_the_place_of_the_previous_one(tmp_path):
    interrupted(tmp_path)
    newest, previous = tmp_path / "checkpoint.safetensors", tmp_path / "checkpoint.previous.safetensors"
    good = previous.read_bytes()
    newest.write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="previous checkpoint"), pytest.raises(RuntimeError, match="power failure"):
        options = {"epochs": 3, "batch_size": 10, "checkpoint_dir": tmp_path, "checkpoint_seconds": 0}
        train(model(dropout=0.3), failing(2, power_failure), data(), **options)
    assert previous.read_bytes() == good
    load(newest)


def test_two_damaged_checkpoints_are_an_error_that_names_both(tmp_path):
    interrupted(tmp_path)
    for name in FILES[:2]:
        (tmp_path / name).write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match=r"(?s)checkpoint.safetensors .* cannot be used either: .*previous"):
        fitted(model(dropout=0.3), epochs=3, checkpoint_dir=tmp_path)


# ------------------------------------------------------------------------------------------------- seeds, locks


def test_a_training_without_a_seed_is_resumed_with_the_seed_that_was_drawn(tmp_path):
    assert checkpoint_seed(tmp_path) is None
    interrupted(tmp_path, seed=None)
    seed = checkpoint_seed(tmp_path)
    again, _ = fitted(model(dropout=0.3), epochs=3, seed=None, checkpoint_dir=tmp_path)
    assert_same(again, fitted(model(dropout=0.3), epochs=3, seed=seed)[0])
    interrupted(tmp_path / "other", seed=None)
    assert checkpoint_seed(tmp_path / "other") != seed


def test_a_second_training_in_the_same_folder_is_refused(tmp_path):
    with locked(tmp_path / "run"), pytest.raises(FileInUseError, match="run is being written by another process"):
        fitted(checkpoint_dir=tmp_path / "run")
    fitted(checkpoint_dir=tmp_path / "run")
    assert names(tmp_path) == ["run"]  # no lock is left
