"""`deepsets export`: a model folder to an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .output import sentences, show


@sentences
def export(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The ONNX file to write.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output.")] = False,
) -> None:
    """Writes a model as ONNX, for use without Python.

    Inputs: values (members, features), offsets (sets + 1) and, if the model was fitted with it, z (sets, k). Output:
    answer, what `predict` or `predict_proba` give, for each set or each member. Needs deepsets[onnx].

    \b
    Example:
      deepsets export model/ -o model.onnx
    """
    from ..io import load
    from ..io.estimator_onnx import to_onnx

    if output.is_dir() or (output.exists() and not overwrite):
        raise ValueError(f"{output} exists: choose another path{'' if output.is_dir() else ', or --overwrite'}.")
    if not output.resolve().parent.is_dir():
        raise ValueError(f"the folder {output.resolve().parent} does not exist.")
    to_onnx(load(model), output)
    show({"model": str(model), "output": str(output), "bytes": output.stat().st_size}, "Exported")
