"""`deepsets explain`: what each member contributes to the prediction for its set."""

from __future__ import annotations

from typing import Any

from .options import AsJson, By, ModelFolder, Output, Overwrite, Table, ZColumns, names
from .output import show_result


def explain(
    model: ModelFolder,
    table: Table,
    output: Output,
    by: By = None,
    z_columns: ZColumns = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write for every member: the prediction for its set, minus the prediction without it.

    A positive number means that the member increases the prediction (for classes: the probability of that class). The
    model must be one with a prediction per set.

    \b
    Example:
      deepsets explain model/ bags.parquet -o contributions.parquet
    """
    from ..io.table_writer import check_output
    from .inference import InferenceJob

    check_output(output, overwrite, [table])
    job = InferenceJob(model, table, by, names(z_columns))
    if not hasattr(job.model, "explain"):
        raise ValueError(
            f"explain needs a model with one prediction per set; {model} holds a {type(job.model).__name__}."
        )
    show_result(job.write(output, _contributions, quiet=as_json), "Explained", as_json)


def _contributions(model: Any, part: Any, by: str) -> dict[str, Any]:
    from ..io.predictions import flatten, naming_columns, output_names

    values = flatten(model.explain(part.X, z=part.z))
    values = values.reshape(len(values), -1)
    out = naming_columns(part, by, per_member=True)
    if values.shape[1] == 1:
        return out | {"contribution": values[:, 0]}
    return out | {f"contribution_{name}": values[:, i] for i, name in enumerate(output_names(model, values.shape[1]))}
