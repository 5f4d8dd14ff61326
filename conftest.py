"""Settings of all tests and pages: fixed examples and random numbers, unless the profile `random` is chosen."""

import contextlib
import os
import tempfile
from collections.abc import Iterator

# On some virtual machines oneDNN's bfloat16 code for AMX ends the process with an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
import torch
from hypothesis import HealthCheck, settings

from deepsets.nn import kernel_ops

_COMMON = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fixed", derandomize=True, max_examples=25, **_COMMON)
settings.register_profile("random", derandomize=False, max_examples=50, **_COMMON)
kernel_ops.checks = True  # kernels trust their offsets; in tests they check them
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def pytest_runtest_setup() -> None:
    """Start every test with the same seed, so that its result does not depend on the tests before it."""
    torch.manual_seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run the code of a page in a temporary folder, where the files that it writes disturb nobody."""
    if item.path.suffix != ".md":
        return (yield)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return (yield)
