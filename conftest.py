"""All tests and pages see the same examples and the same random numbers on every run, few enough to stay quick."""

import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "deepsets",
    derandomize=True,
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("deepsets")


def pytest_runtest_setup() -> None:
    """Torch begins every process with another seed; numbers that were right by chance yesterday fail tomorrow."""
    torch.manual_seed(0)
