"""`deepsets evaluate`: how good a model is on a table with known targets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..io import load
from ..io.predictions import flatten, task_of
from ..io.storage import arrow
from ..io.table_writer import check_folder
from .console import AsJson, By, Element, ModelFolder, Table, ZColumns, names, show, show_json, show_table
from .metrics import MEMBERS, boosting, class_codes, class_scores, constant, member_matrix, number_scores, summaries
from .predict import InferenceJob
from .report import write_report
from .tables import read_elements, targets


def evaluate(
    model: ModelFolder,
    table: Table,
    target: Annotated[
        str | None, typer.Option(help="The column with the true values (default: as in the fit).")
    ] = None,
    by: By = None,
    z_columns: ZColumns = None,
    element: Element = None,
    train: Annotated[Path | None, typer.Option(help="Expansion: the table of the fit, for the baselines.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Expansion: length of the lists.")] = 10,
    report: Annotated[Path | None, typer.Option(help="Write a page with plots to this HTML file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare predictions with the targets in the table, beside baselines.

    Classes: accuracy, balanced accuracy, AUC, F1, log loss (nats) and expected calibration error (ECE). Numbers: R²,
    RMSE and MAE. Baselines: the class shares or the mean of the table, and gradient boosting on summaries of the sets
    by 5-fold cross-validation within the table. Members without a target are context for the others, but do not count.
    Expansion: one member of each set is held out and ranked; recall@k, MRR and coverage beside popularity and
    item-item similarity. Use sets that the model was not fitted on.

    \b
    Examples:
      deepsets evaluate model/ held-out.parquet
      deepsets evaluate model/ held-out.csv --report report.html
      deepsets evaluate baskets/ new.csv --by receipt --element item --train old.csv
    """
    if report is not None:
        check_folder(report)
    if hasattr(load(model), "expand"):
        result, drawing = _expansion(model, table, by, element, train, k), None
    elif element is not None or train is not None:
        raise typer.BadParameter("it is for models of --task expansion.", param_hint="--element, --train")
    else:
        result, drawing = _estimator(model, table, by, names(z_columns), names(target), as_json)
    result = {"model": str(model), "table": str(table)} | result
    if report is not None:
        write_report(report, result, drawing)
    if as_json:
        show_json(result)
        return
    show({name: result[name] for name in ("model", "table", "sets", "labelled")}, "Evaluated")
    show_table(result["methods"], "\nScores")


def _expansion(
    model: Path, table: Path, by: str | None, element: str | None, train: Path | None, k: int
) -> dict[str, Any]:
    from ..expand import evaluate as evaluate_expander

    expander = load(model)
    columns = dict(zip(("by", "element"), getattr(expander, "columns_", (None, None)), strict=True))  # those of the fit
    columns |= {name: given for name, given in {"by": by, "element": element}.items() if given}
    _, sets = read_elements(table, **columns)
    before = None if train is None else read_elements(train, **columns)[1]
    rows = evaluate_expander(expander, sets, k, training_sets=before)
    methods = [{name: value for name, value in row.items() if name != "queries"} for row in rows]
    scores = {name: value for name, value in methods[0].items() if name != "method"}
    return {"sets": len(sets), "labelled": rows[0]["queries"]} | scores | {"methods": methods}


def _estimator(
    model: Path, table: Path, by: str | None, z: list[str], target: list[str], quiet: bool
) -> tuple[dict[str, Any], Any]:
    """The scores of the model and of the baselines, and what a report draws: predictions, true values, names."""
    job = InferenceJob(model, table, by, z, target)
    task, columns = task_of(job.model), job.source.columns
    outcomes, kept, sets, members = [], [], 0, 0
    for part in job.parts(quiet):
        outcomes.append(_compare(job.model, task.name, part, columns.target))
        if members < MEMBERS:
            X, context = part.named(columns)
            kept.append(replace(part, X=X, z=context))
        sets, members = sets + len(part), members + int(part.sizes.sum())
    found, wanted = (np.concatenate(each) for each in list(zip(*outcomes, strict=True))[:2])
    if len(wanted) == 0:
        raise ValueError("the table has no known targets to compare with.")
    inputs, groups = _inputs(kept, task.per_member)
    known = np.concatenate([known for _, _, known in outcomes[: len(kept)]])
    inputs, groups = inputs[known], groups[known]
    facts, method = {"sets": sets, "labelled": len(wanted)}, {"method": type(job.model).__name__}
    if task.name == "odd-one-out":
        own: dict[str, Any] = {"accuracy": float(np.mean(found == wanted))}
        chance = {"method": "chance", "accuracy": float(np.mean(1 / inputs[:, 0]))}  # the first summary is the size
        return facts | own | {"methods": [method | own, chance]}, None
    classes = len(job.model.classes_) if task.classes else None
    score: Any = class_scores if task.classes else number_scores
    own, some = score(found, wanted), wanted[: len(inputs)]
    rows = [method | own]
    rows.append({"method": "class shares" if classes else "mean"} | score(constant(wanted, classes), wanted))
    if len(np.unique(groups)) >= 10:
        rows.append({"method": "boosting on summaries"} | score(boosting(inputs, some, classes, groups), some))
    return facts | own | {"methods": rows}, (found, wanted, job.model.classes_ if classes else columns.target)


def _compare(model: Any, task: str, part: Any, columns: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predictions and targets of what is labelled, and which sets or members that is."""
    y = targets(task, part, columns)
    if task == "odd-one-out":
        return model.predict(part.X, z=part.z), y, np.ones(len(y), dtype=bool)
    if task.endswith("regression"):
        values, y = flatten(model.predict(part.X, z=part.z)).reshape(len(y), -1), y.reshape(len(y), -1)
        known = np.isfinite(y).all(1)
        return values[known], y[known], known
    known = np.array([label is not None and label == label for label in y.tolist()], dtype=bool)  # noqa: PLR0124
    codes = class_codes(y[known].tolist(), model.classes_)
    return flatten(model.predict_proba(part.X, z=part.z))[known], codes, known


def _inputs(parts: list[Any], per_member: bool) -> tuple[np.ndarray, np.ndarray]:
    """What boosting sees of each set or member, and the set it belongs to."""
    whole = replace(
        parts[0],
        X=arrow().concat_arrays([part.X for part in parts]),
        z=None if parts[0].z is None else arrow().concat_tables([part.z for part in parts]),
        sizes=np.concatenate([part.sizes for part in parts]),
    )
    described, sets = summaries(whole), np.arange(len(whole))
    if per_member:
        sets = np.repeat(sets, whole.sizes)
        described = np.concatenate([member_matrix(whole), described[sets]], axis=1)
    return described, sets
