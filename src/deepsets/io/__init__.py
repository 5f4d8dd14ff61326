"""Model folders (safetensors + JSON), tables of sets in files, and export to ONNX and `torch.export`."""

from .export import estimator_onnx, export_onnx, export_program
from .hub import from_pretrained, push_to_hub
from .model_folder import ModelFolderError, load, model_identity, save
from .storage import TableError

__all__ = [
    "ModelFolderError",
    "TableError",
    "estimator_onnx",
    "export_onnx",
    "export_program",
    "from_pretrained",
    "load",
    "model_identity",
    "push_to_hub",
    "save",
]
