"""Settings of all tests and pages: fixed examples and random numbers, unless the profile `random` is chosen."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

# On some virtual machines oneDNN's bfloat16 code for AMX ends the process with an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
import torch
from hypothesis import HealthCheck, settings

from deepsets.nn import kernel_ops, parallel

_COMMON = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fixed", derandomize=True, max_examples=25, **_COMMON)
settings.register_profile("random", derandomize=False, max_examples=50, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def _checked_run(function: Any, sets: int, arguments: list[Any], **options: Any) -> None:
    """Check what compiled loops trust: a wrong offset would read foreign memory."""
    offsets, tensors = arguments[1], [x for x in arguments if isinstance(x, torch.Tensor)]
    assert offsets.shape == (sets + 1,) and int(offsets[0]) == 0 and bool((offsets.diff() >= 0).all())
    assert int(offsets[-1]) in {x.shape[0] for x in tensors} and all(x.is_contiguous() for x in tensors)
    parallel.run(function, sets, arguments, **options)


kernel_ops.run = _checked_run


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count the pages of the documentation among the slow tests: many of them fit models of full size."""
    for item in items:
        if item.path.suffix == ".md":
            item.add_marker(pytest.mark.slow)


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
