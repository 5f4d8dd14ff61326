"""`deepsets evaluate`: how good a model is on a table with known targets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .output import names, progress, sentences, show, show_json


@sentences
def evaluate(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    table: Annotated[Path, typer.Argument(help="Parquet, CSV, Arrow/Feather, JSON lines or NPZ.")],
    target: Annotated[str | None, typer.Option(help="The column with the truth (default: as in the fit).")] = None,
    by: Annotated[str | None, typer.Option(help="The column that names the set (default: as in the fit).")] = None,
    z_columns: Annotated[
        str | None, typer.Option(help="Columns known of the whole set (default: as in the fit).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compares the answers with the targets in the table.

    Numbers: r2, rmse and mae. Classes: accuracy and log loss (nats). Odd one out: accuracy. Members without a target
    are seen by their set mates, but do not count. Give sets that the model was not fitted on.

    \b
    Examples:
      deepsets evaluate model/ held-out.parquet
      deepsets evaluate model/ held-out.csv --json
    """
    from .inference import Question

    question = Question(model, table, by, names(z_columns), names(target))
    found, wanted, sets = [], [], 0
    with progress("rows", question.rows, as_json) as move:
        for part in question.parts():
            answers, known = _compare(question, part)
            found.append(answers)
            wanted.append(known)
            sets += len(part)
            move(len(part) if question.shape.nested else int(part.sizes.sum()))
    scores = _scores(question.model, np.concatenate(found), np.concatenate(wanted))
    result = {"model": str(model), "table": str(table), "sets": sets, **scores}
    if as_json:
        show_json(result)
    else:
        show(result, "Evaluated")


def _compare(question: Any, part: Any) -> tuple[np.ndarray, np.ndarray]:
    """Answers and targets of what is labelled: numbers (n, targets), probabilities (n, classes) and class numbers."""
    from ..estimators.targets import codes
    from ..io import flat
    from .tasks import TASKS, targets

    model = question.model
    task = next(task for task, name in TASKS.items() if name == type(model).__name__)
    y = targets(task, part, question.columns.target)
    if task == "odd-one-out":
        return model.predict(part.X, part.z), y
    if task.endswith("regression"):
        values = flat(model.predict(part.X, part.z)).reshape(len(y), -1)
        y = y.reshape(len(y), -1)
        known = np.isfinite(y).all(1)
        return values[known], y[known]
    known = np.array([label is not None and label == label for label in y.tolist()], dtype=bool)  # noqa: PLR0124
    labels = np.array(y[known].tolist())
    if labels.dtype.kind in "US" and model.classes_.dtype.kind not in "USO":
        raise ValueError(
            f"the targets are strings such as {str(labels[0])!r}, but the classes are {model.classes_.tolist()}."
        )
    return flat(model.predict_proba(part.X, part.z))[known], codes(labels, model.classes_)


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
