"""Learning on sets: ragged batches, permutation-invariant and -equivariant networks, estimators, set expansion."""

from importlib.metadata import version

from . import nn
from .io import ModelFolderError, export_onnx, export_program, load, save
from .sets import Sets
from .versions import show_versions

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
