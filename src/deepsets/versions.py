"""What runs here: versions, kernels and threads, for bug reports."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from .nn.kernels import implementation

_PACKAGES = ("deepsets", "torch", "numpy", "scipy", "scikit-learn", "numba", "pyarrow", "pandas", "polars")


def versions() -> dict[str, str]:
    """Collect the versions of the packages, the kernels that run and the number of threads.

    Returns
    -------
    dict of str to str
        Names and versions; a package that is not installed is missing.
    """
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return {**found, "kernels": implementation(), "threads": str(torch.get_num_threads())}


def show_versions() -> None:
    """Print the versions of the packages, the kernels that run and the number of threads."""
    for name, value in versions().items():
        print(f"{name}: {value}")  # noqa: T201
