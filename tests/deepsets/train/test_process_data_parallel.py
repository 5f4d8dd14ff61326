"""Several processes under torchrun give the gradients and weights of one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from deepsets import nn
from deepsets.train.process import Workers, join_workers, sum_gradients, training_device

from . import two_processes

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def torchrun(tmp_path_factory):
    """Folder where two processes wrote their weights and gradients."""
    folder = tmp_path_factory.mktemp("torchrun")
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *run, str(HERE / "two_processes.py"), str(folder)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
    }
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
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


# ------------------------------------------------------------------------------------------------------- devices


def test_without_a_device_training_happens_where_the_weights_are():
    assert training_device(None, torch.nn.Linear(2, 2, device="meta")).type == "meta"
    assert training_device(None, torch.nn.Identity()).type == "cpu"
    assert training_device("meta", torch.nn.Linear(2, 2)).type == "meta"


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_device_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match="device='cuda' was asked for, but torch finds no CUDA device"):
        training_device("cuda", torch.nn.Linear(2, 2))


def test_auto_takes_cuda_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert training_device("auto", nn.mlp(2, 2)) == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert training_device("auto", nn.mlp(2, 2)) == torch.device("cuda", 0)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert training_device("auto", nn.mlp(2, 2)) == torch.device("cuda", 3)


@pytest.mark.parametrize(("device", "backend"), [("cpu", "gloo"), ("cuda", "nccl")])
def test_nccl_is_used_only_for_weights_on_cuda(monkeypatch, device, backend):
    joined = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: False)
    monkeypatch.setattr("torch.distributed.init_process_group", joined.append)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 1)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    monkeypatch.setattr("atexit.register", lambda function: None)
    assert join_workers(torch.device(device)) == (1, 2)
    assert joined == [backend]


def test_one_process_has_nothing_to_sum():
    layer = torch.nn.Linear(2, 1)
    assert sum_gradients(layer.parameters(), (1.5, 2.0, 0.0), Workers(0, 1)) == (1.5, 2.0, 0.0)
    assert layer.weight.grad is None
