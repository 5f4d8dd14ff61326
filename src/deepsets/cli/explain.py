"""`deepsets explain`: what each member contributes to the prediction for its set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .errors import user_errors
from .output import names, show_result


@user_errors
def explain(
    model: Annotated[Path, typer.Argument(help="A model folder of a task with one prediction per set.")],
    table: Annotated[Path, typer.Argument(help="Parquet, CSV, Arrow/Feather, JSON lines or NPZ.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The table to write; format by extension.")],
    by: Annotated[str | None, typer.Option(help="The column that names the set (default: as in the fit).")] = None,
    z_columns: Annotated[
        str | None, typer.Option(help="Columns known of the whole set (default: as in the fit).")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write for every member: the prediction for its set, minus the prediction without it.

    A positive number means that the member increases the prediction (for classes: the probability of that class).

    \b
    Example:
      deepsets explain model/ bags.parquet -o contributions.parquet
    """
    from ..io import check_output
    from .inference import InferenceJob

    check_output(output, overwrite, (table,))
    job = InferenceJob(model, table, by, names(z_columns))
    if not hasattr(job.model, "explain"):
        raise ValueError(
            f"explain needs a model with one prediction per set; {model} holds a {type(job.model).__name__}."
        )
    show_result(job.write(output, _contributions, quiet=as_json), "Explained", as_json)


def _contributions(model: Any, part: Any, by: str) -> dict[str, Any]:
    from ..io import flatten, naming_columns, output_names

    values = flatten(model.explain(part.X, z=part.z))
    values = values.reshape(len(values), -1)
    out = naming_columns(part, by, per_member=True)
    if values.shape[1] == 1:
        return out | {"contribution": values[:, 0]}
    return out | {f"contribution_{name}": values[:, i] for i, name in enumerate(output_names(model, values.shape[1]))}
