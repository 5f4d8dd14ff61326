"""Process-wide state: seeded blocks, memory settings."""

import subprocess
import sys
import threading

import pytest
import torch

from deepsets.train import seeded

from .helpers import fitted


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
