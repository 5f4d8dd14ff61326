"""Process-wide state: seeded blocks, memory settings."""

import subprocess
import sys
import threading

import pytest
import torch

from deepsets.train import seeded, train
from deepsets.train.process import StepThreads

from .helpers import data, fitted, loss, model


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
from deepsets.train.process import keep_memory
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
print(first, keep_memory(), mapped())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["True", "True", "False"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_seeded_block_restores_the_generator(fails):
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError) if fails else seeded(1), seeded(5):
        first = torch.rand(3)
        if fails:
            raise RuntimeError
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, torch.rand(3, generator=torch.Generator().manual_seed(5)))


def test_seeded_blocks_of_several_threads_do_not_mix():
    found: dict[int, torch.Tensor] = {}

    def draw(seed):
        with seeded(seed):
            found[seed] = torch.stack([torch.rand(50) for _ in range(40)])

    threads = [threading.Thread(target=draw, args=[seed]) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, numbers in found.items():
        generator = torch.Generator().manual_seed(seed)
        assert torch.equal(numbers, torch.stack([torch.rand(50, generator=generator) for _ in range(40)]))


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("work", "wanted"), [(2e8, 1), (1.0, 2)])
def test_small_steps_run_on_one_thread_and_large_ones_on_those_of_the_user(monkeypatch, two_threads, work, wanted):
    monkeypatch.setattr("deepsets.train.process.WORK", work)
    steps, callbacks = set(), set()

    def watched(net, batch):
        steps.add(torch.get_num_threads())
        return loss(net, batch)

    def called(numbers):
        callbacks.add(torch.get_num_threads())

    train(model(), watched, data(), epochs=2, batch_size=10, validation=data(seed=1), on_epoch=called)
    assert steps == {wanted}
    assert callbacks == {2}
    assert torch.get_num_threads() == 2


def test_threads_are_put_back_after_an_error(two_threads):
    def fails(net, batch):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(model(), fails, data())
    assert torch.get_num_threads() == 2


def test_threads_of_a_step_follow_from_elements_and_matrices_but_not_from_embeddings(monkeypatch, two_threads):
    monkeypatch.setattr("deepsets.train.process.WORK", 100.0)
    net = torch.nn.Sequential(torch.nn.Embedding(1000, 4), torch.nn.Linear(4, 5), torch.nn.Linear(5, 12))
    with StepThreads(net) as threads, threads.of_step() as use:  # 20 and 60 weights: 40 multiplications per element
        for elements, wanted in ((4, 1), (5, 2), (1000, 2)):
            use(elements)
            assert torch.get_num_threads() == wanted


def test_trainings_in_several_python_threads_leave_the_number_of_torch_threads(two_threads):
    runs = [threading.Thread(target=fitted, kwargs={"epochs": 5}) for _ in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    found = []
    later = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert found == [torch.get_num_threads()] == [2]
