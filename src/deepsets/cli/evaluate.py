"""`deepsets evaluate`: how good a model is on a table with known targets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .errors import user_errors
from .output import names, show_result


@user_errors
def evaluate(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    table: Annotated[Path, typer.Argument(help="Parquet, CSV, Arrow/Feather, JSON lines or NPZ.")],
    target: Annotated[
        str | None, typer.Option(help="The column with the true values (default: as in the fit).")
    ] = None,
    by: Annotated[str | None, typer.Option(help="The column that names the set (default: as in the fit).")] = None,
    z_columns: Annotated[
        str | None, typer.Option(help="Columns known of the whole set (default: as in the fit).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare predictions with the targets in the table.

    Numbers: r2, rmse and mae. Classes: accuracy and log loss (nats). Odd one out: accuracy. Members without a target
    are context for the others, but do not count. Use sets that the model was not fitted on.

    \b
    Examples:
      deepsets evaluate model/ held-out.parquet
      deepsets evaluate model/ held-out.csv --json
    """
    from .inference import InferenceJob

    job = InferenceJob(model, table, by, names(z_columns), names(target))
    found, wanted, sets = [], [], 0
    for part in job.parts(as_json):
        predicted, known = _compare(job.model, part, job.source.columns.target)
        found.append(predicted)
        wanted.append(known)
        sets += len(part)
    scores = _scores(job.model, np.concatenate(found), np.concatenate(wanted))
    show_result({"model": str(model), "table": str(table), "sets": sets, **scores}, "Evaluated", as_json)


def _compare(model: Any, part: Any, target: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Predictions and targets of what is labelled: numbers (n, targets), or probabilities (n, classes) and codes."""
    from ..estimators.targets import codes
    from ..io import flatten, task_of
    from .targets import targets

    task = task_of(model).name
    y = targets(task, part, target)
    if task == "odd-one-out":
        return model.predict(part.X, z=part.z), y
    if task.endswith("regression"):
        values = flatten(model.predict(part.X, z=part.z)).reshape(len(y), -1)
        y = y.reshape(len(y), -1)
        known = np.isfinite(y).all(1)
        return values[known], y[known]
    known = np.array([label is not None and label == label for label in y.tolist()], dtype=bool)  # noqa: PLR0124
    labels = np.array(y[known].tolist())
    if labels.dtype.kind in "US" and model.classes_.dtype.kind not in "USO":
        raise ValueError(
            f"the targets are strings such as {str(labels[0])!r}, but the classes are {model.classes_.tolist()}."
        )
    return flatten(model.predict_proba(part.X, z=part.z))[known], codes(labels, model.classes_)


def _scores(model: Any, found: np.ndarray, wanted: np.ndarray) -> dict[str, Any]:
    from sklearn import metrics

    count = {"labelled": len(wanted)}
    if len(wanted) == 0:
        raise ValueError("the table has no known targets to compare with.")
    if hasattr(model, "classes_"):
        loss = metrics.log_loss(wanted, found, labels=np.arange(len(model.classes_)))
        return count | {"accuracy": float(np.mean(found.argmax(1) == wanted)), "log_loss": float(loss)}
    if found.ndim == 1:
        return count | {"accuracy": float(np.mean(found == wanted))}
    r2 = float(metrics.r2_score(wanted, found)) if len(wanted) > 1 else None
    rmse = float(np.sqrt(np.mean((found - wanted) ** 2)))
    return count | {"r2": r2, "rmse": rmse, "mae": float(np.abs(found - wanted).mean())}
