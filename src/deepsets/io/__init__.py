"""Model folders (safetensors + JSON), tables of sets in files, and export to ONNX and `torch.export`."""

from .arrow_types import TableError, arrow, numbers
from .columns import Columns, Shape, shape_of
from .export import estimator_onnx, export_onnx, export_program
from .files import File, format_of
from .model_config import ModelFolderError, to_plain
from .model_folder import check_free, load, model_identity, save
from .predictions import flatten, naming_columns, output_columns, output_names, prediction_columns
from .reader import SeenNames, read, stream
from .source import Source, check_values, table_files
from .table_sets import TableSets, identifiers, same_within_sets, to_sets
from .table_writer import check_folder, check_output, writer
from .tasks import TASKS, Task, task_of

__all__ = [
    "TASKS",
    "Columns",
    "File",
    "ModelFolderError",
    "SeenNames",
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
    "identifiers",
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
    "table_files",
    "task_of",
    "to_plain",
    "to_sets",
    "writer",
]
