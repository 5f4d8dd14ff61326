"""`deepsets evaluate`: how good a model is on a table with known targets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .errors import user_errors
from .output import names, show, show_json, show_rows


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
    element: Annotated[str | None, typer.Option(help="Expansion: the column of the elements.")] = None,
    train: Annotated[Path | None, typer.Option(help="Expansion: the table of the fit, for the baselines.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Expansion: length of the lists.")] = 10,
    report: Annotated[Path | None, typer.Option(help="Write a page with plots to this HTML file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
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
    from ..io import check_folder, load
    from .report import write_report

    if report is not None:
        check_folder(report)
    if hasattr(load(model), "expand"):
        result, drawing = _expansion(model, table, by, element, train, k), None
    else:
        if element is not None or train is not None:
            raise typer.BadParameter("it is for models of --task expansion.", param_hint="--element, --train")
        result, drawing = _Evaluation(model, table, by, names(z_columns), names(target), as_json).result()
    if report is not None:
        write_report(report, result, drawing)
    if as_json:
        show_json(result)
        return
    show({name: result[name] for name in ("model", "table", "sets", "labelled") if name in result}, "Evaluated")
    show_rows(result["methods"], "\nScores")


def _expansion(
    model: Path, table: Path, by: str | None, element: str | None, train: Path | None, k: int
) -> dict[str, Any]:
    from ..expand import evaluate as evaluate_expander
    from ..io import load
    from .fit_expansion import read_elements

    _, sets = read_elements(table, by, element)
    before = None if train is None else read_elements(train, by, element)[1]
    rows = evaluate_expander(load(model), sets, k, training_sets=before)
    scores = {name: value for name, value in rows[0].items() if name not in ("method", "queries")}
    facts = {"model": str(model), "table": str(table), "sets": len(sets), "labelled": rows[0]["queries"]}
    return facts | scores | {"methods": [{n: v for n, v in row.items() if n != "queries"} for row in rows]}


class _Evaluation:
    """Predictions and targets of a whole table, and what the baselines need."""

    def __init__(self, model: Path, table: Path, by: str | None, z: list[str], target: list[str], quiet: bool) -> None:
        from ..io import task_of
        from .baselines import MEMBERS
        from .inference import InferenceJob

        job = InferenceJob(model, table, by, z, target)
        self.facts = {"model": str(model), "table": str(table)}
        self.model, self.task, self.names = job.model, task_of(job.model), job.source.columns.target
        self.sets = members = 0
        found, wanted, kept, marks = [], [], [], []
        for part in job.parts(quiet):
            predicted, y, known = self._compare(part)
            found.append(predicted)
            wanted.append(y)
            if members < MEMBERS:
                X, z = part.named(job.source.columns)
                kept.append(replace(part, X=X, z=z))
                marks.append(known)
            self.sets += len(part)
            members += int(part.sizes.sum())
        self.found, self.wanted = np.concatenate(found), np.concatenate(wanted)
        if len(self.wanted) == 0:
            raise ValueError("the table has no known targets to compare with.")
        inputs, groups = self._inputs(kept)
        known = np.concatenate(marks)
        self.inputs, self.groups = inputs[known], groups[known]

    def _inputs(self, parts: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        """What boosting sees of each set or member, and the set it belongs to."""
        from ..io import arrow
        from .baselines import member_matrix, summaries

        whole = replace(
            parts[0],
            X=arrow().concat_arrays([part.X for part in parts]),
            z=None if parts[0].z is None else arrow().concat_tables([part.z for part in parts]),
            sizes=np.concatenate([part.sizes for part in parts]),
        )
        described = summaries(whole)
        if not self.task.per_member:
            return described, np.arange(len(whole))
        sets = np.repeat(np.arange(len(whole)), whole.sizes)
        return np.concatenate([member_matrix(whole), described[sets]], axis=1), sets

    def _compare(self, part: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Predictions and targets of what is labelled, and which sets or members that is."""
        from ..io import flatten
        from .metrics import class_codes
        from .targets import targets

        y = targets(self.task.name, part, self.names)
        if self.task.name == "odd-one-out":
            return self.model.predict(part.X, z=part.z), y, np.ones(len(y), dtype=bool)
        if self.task.name.endswith("regression"):
            values, y = flatten(self.model.predict(part.X, z=part.z)).reshape(len(y), -1), y.reshape(len(y), -1)
            known = np.isfinite(y).all(1)
            return values[known], y[known], known
        known = np.array([label is not None and label == label for label in y.tolist()], dtype=bool)  # noqa: PLR0124
        codes = class_codes(y[known].tolist(), self.model.classes_)
        return flatten(self.model.predict_proba(part.X, z=part.z))[known], codes, known

    def result(self) -> tuple[dict[str, Any], Any]:
        """The scores of the model and of the baselines, and what a report draws."""
        from . import baselines
        from .metrics import class_scores, number_scores

        found, wanted = self.found, self.wanted
        facts = self.facts | {"sets": self.sets, "labelled": len(wanted)}
        name = type(self.model).__name__
        if self.task.name == "odd-one-out":
            accuracy = {"accuracy": float(np.mean(found == wanted))}
            chance = {"accuracy": float(np.mean(1 / self.inputs[:, 0]))}  # the first summary is the size
            return facts | accuracy | {"methods": [{"method": name} | accuracy, {"method": "chance"} | chance]}, None
        classes = len(self.model.classes_) if self.task.classes else None
        score: Any = class_scores if self.task.classes else number_scores
        own = score(found, wanted)
        rows = [{"method": name} | own]
        rows.append(
            {"method": "class shares" if classes else "mean"} | score(baselines.constant(wanted, classes), wanted)
        )
        some = wanted[: len(self.inputs)]
        if len(np.unique(self.groups)) >= 10:
            groups = self.groups if self.task.per_member else None
            rows.append(
                {"method": "boosting on summaries"}
                | score(baselines.boosting(self.inputs, some, classes, groups), some)
            )
        return facts | own | {"methods": rows}, (found, wanted, self.model.classes_ if classes else self.names)
