"""Model folders (safetensors + JSON), tables of sets in files, and export to ONNX and `torch.export`."""

from .columns import Columns, Shape, shape_of
from .export import estimator_onnx, export_onnx, export_program
from .files import File, numbers
from .model_folder import ModelFolderError, check_free, load, model_identity, save, to_plain
from .predictions import (
    TASKS,
    Task,
    flatten,
    naming_columns,
    output_columns,
    output_names,
    prediction_columns,
    task_of,
)
from .reader import Source, check_values, read, stream
from .storage import TableError, arrow, format_of
from .table_sets import TableSets, same_within_sets, to_sets
from .table_writer import check_folder, check_output, writer

__all__ = [
    "TASKS",
    "Columns",
    "File",
    "ModelFolderError",
    "Shape",
    "Source",
    "TableError",
    "TableSets",
    "Task",
    "arrow",
    "check_folder",
    "check_free",
    "check_output",
    "check_values",
    "estimator_onnx",
    "export_onnx",
    "export_program",
    "flatten",
    "format_of",
    "load",
    "model_identity",
    "naming_columns",
    "numbers",
    "output_columns",
    "output_names",
    "prediction_columns",
    "read",
    "same_within_sets",
    "save",
    "shape_of",
    "stream",
    "task_of",
    "to_plain",
    "to_sets",
    "writer",
]
