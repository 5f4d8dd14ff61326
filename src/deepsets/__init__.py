"""Learning on sets: ragged batches, permutation-invariant and -equivariant networks, estimators, set expansion."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from . import nn
from .sets import Sets
from .versions import show_versions

if TYPE_CHECKING:
    from .io import ModelFolderError, export_onnx, export_program, load, save

__version__ = version("deepsets")
__all__ = [
    "ModelFolderError",
    "Sets",
    "__version__",
    "export_onnx",
    "export_program",
    "load",
    "nn",
    "save",
    "show_versions",
]


def __getattr__(name: str) -> Any:
    """Import the names of `deepsets.io` on first use: model folders need scikit-learn, layers do not."""
    if name in ("ModelFolderError", "export_onnx", "export_program", "load", "save"):
        return getattr(import_module(".io", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
