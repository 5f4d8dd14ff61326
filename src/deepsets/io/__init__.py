"""Model folders (safetensors + JSON), tables of sets in files, and export to ONNX and `torch.export`."""

from .columns import Columns, Shape, shape_of
from .export import export_onnx, export_program
from .files import File
from .model_config import ModelFolderError
from .model_folder import check_free, load, save
from .predictions import answers, flat, naming, output_names
from .reader import read, stream
from .source import Source, check_values
from .table_sets import TableSets, numbers, same_within_sets, to_sets
from .table_writer import check_output, writer

__all__ = [
    "Columns", "File", "ModelFolderError", "Shape", "Source", "TableSets", "answers", "check_free", "check_output",
    "check_values", "export_onnx", "export_program", "flat", "load", "naming", "numbers", "output_names", "read",
    "same_within_sets", "save", "shape_of", "stream", "to_sets", "writer",
]  # fmt: skip
