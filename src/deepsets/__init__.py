"""Learning on sets: ragged batches, Deep Sets models, and what the paper compares them with."""

from typing import TYPE_CHECKING, Any

from . import nn as nn
from .export import export_onnx as export_onnx
from .export import export_program as export_program
from .sets import Sets as Sets

if TYPE_CHECKING:
    from .store import ModelFolderError as ModelFolderError
    from .store import load as load
    from .store import save as save


def __getattr__(name: str) -> Any:
    """Model folders know the estimators, and these scikit-learn: imported when they are asked for."""
    if name in ("load", "save", "ModelFolderError"):
        from . import store

        return getattr(store, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
