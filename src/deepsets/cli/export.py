"""`deepsets export`: a model folder to an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..io import estimator_onnx, load
from ..io.table_writer import check_folder
from .console import AsJson, ModelFolder, Overwrite, show_result


def export(
    model: ModelFolder,
    output: Annotated[Path, typer.Option("-o", "--output", help="The ONNX file to write.")],
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a model as ONNX, for use without Python.

    Inputs: values (members, features), offsets (sets + 1) and, if the model was fitted with it, z (sets, k). Output:
    what `predict` or `predict_proba` return, per set or per member. Needs deepsets[onnx].

    \b
    Example:
      deepsets export model/ -o model.onnx
    """
    if output.is_dir() or (output.exists() and not overwrite):
        raise ValueError(f"{output} exists: choose another path{'' if output.is_dir() else ', or --overwrite'}.")
    check_folder(output)
    estimator_onnx(load(model), output)
    show_result({"model": str(model), "output": str(output), "bytes": output.stat().st_size}, "Exported", as_json)
