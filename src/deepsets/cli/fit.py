"""`deepsets fit`: a table to a model folder."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from ..files import locked
from ..io import save
from ..io.model_folder import check_free
from ..io.predictions import TASKS
from ..io.reader import Source, check_values
from ..io.table_writer import check_folder
from .console import AsJson, Element, Overwrite, Table, names, show, show_result, show_table
from .tables import check_target, describe, guess_task, overview, read_elements, targets

TaskName = Literal[
    "set-regression", "set-classification", "member-regression", "member-classification", "odd-one-out", "expansion"
]


def fit(
    table: Table,
    output: Annotated[Path, typer.Option("-o", "--output", help="The model folder to write.")],
    target: Annotated[str | None, typer.Option(help="The column to learn (several for regression: a,b).")] = None,
    by: Annotated[str | None, typer.Option(help="The column that names the set, where a row is a member.")] = None,
    task: Annotated[TaskName | None, typer.Option(help="By default guessed from the target.")] = None,
    features: Annotated[str | None, typer.Option(help="Feature columns: a,b (default: all others).")] = None,
    z_columns: Annotated[str | None, typer.Option(help="Columns known of the whole set: a,b.")] = None,
    element: Element = None,
    method: Annotated[str | None, typer.Option(help="Expansion: blend (default) or one of its methods.")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Tasks of sets: auto (default, a blend), deep, boosting, forest, kernel or linear."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the sets.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Sets per training step.")] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Width of the networks.")] = None,
    class_weight: Annotated[str | None, typer.Option(help="balanced: all classes count the same.")] = None,
    early_stopping: Annotated[
        bool, typer.Option("--early-stopping", help="Stop when held-out sets do not improve.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="auto (default), cpu or cuda.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same model.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted fit of the same command.")] = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model to a table and write a model folder.

    Each column as it was understood is shown before the training, so that mistakes are seen early. A row of the table
    is a member, and --by names its set; or a row is a set, and list columns hold its members. Columns may hold numbers,
    booleans, text, dates and missing values. Checkpoints are kept beside the output until it is complete: after Ctrl-C
    or a crash the same command with --resume continues.

    \b
    Examples:
      deepsets fit galaxies.parquet --by cluster_id --target z -o model/
      deepsets fit bags.csv --by bag --target active --features f1,f2 -o model/
      deepsets fit nested.jsonl --target label --epochs 50 --seed 1 -o model/
      deepsets fit sales.csv --task expansion --by receipt --element item -o model/
    """
    _check_options(task, target=target, features=features, z_columns=z_columns, element=element, method=method)
    check_free(output, overwrite)
    check_folder(output)
    options = {
        "model": model,
        "epochs": epochs,
        "batch_size": batch_size,
        "width": width,
        "class_weight": class_weight,
        "early_stopping": early_stopping or None,
        "device": device,
    }
    chosen = {name: value for name, value in options.items() if value is not None}
    with locked(Path(f"{output.absolute()}.fit")):
        if task == "expansion":
            _fit_expansion(table, output, by, element, method, epochs, seed, overwrite, as_json)
            return
        source = Source(None, [table], by, features=names(features), z=names(z_columns), target=names(target))
        estimator, data, schema = _prepare(source, task, chosen, as_json)
        folder = _checkpoints(output, resume)
        verbose = sys.stderr.isatty() and not as_json
        estimator.set_params(random_state=seed, verbose=verbose, checkpoint_dir=str(folder))
        start = time.perf_counter()
        try:
            estimator.fit(*data[:2], z=data[2])
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"The same command with --resume continues from {folder}.") from None
        estimator.target_names_ = source.columns.target
        seconds = round(time.perf_counter() - start, 3)
        save(estimator, output, overwrite)
        shutil.rmtree(folder, ignore_errors=True)
    result = {"model": str(output)} | _summary(estimator) | {"seconds": seconds}
    show_result((schema if as_json else {}) | result, "\nFitted", as_json)


def _check_options(task: str | None, **given: str | None) -> None:
    """Usage errors: an option that the task does not have, or needs."""
    expansion = task == "expansion"
    if not expansion and given["target"] is None:
        raise typer.BadParameter("name the column to learn.", param_hint="--target")
    for name in ("target", "features", "z_columns") if expansion else ("element", "method"):
        if given[name] is not None:
            which = "cannot be used with" if expansion else "needs"
            raise typer.BadParameter(f"it {which} --task expansion.", param_hint=f"--{name.replace('_', '-')}")


def _prepare(
    source: Any, task: str | None, options: dict[str, Any], as_json: bool
) -> tuple[Any, tuple[Any, Any, Any], dict[str, Any]]:
    """Read the table and show what it holds; returns the estimator for it, its X, y and z, and the schema."""
    from .. import estimators

    sets, columns = source.read(), source.columns
    task = task or guess_task(sets)
    described = describe(sets, columns)
    facts = overview(source.files[0], sets.sizes, task)
    facts["labelled"] = min(len(column) - column.null_count for column in sets.targets)
    if not as_json:
        show(facts, "Table")
        show_table(described[:40], "\nColumns")
        if len(described) > 40:
            typer.echo(f"… and {len(described) - 40} more")
    roles = {"features": columns.features, "z": columns.z, "target": columns.target}
    check_target(task, sets, columns.target)
    check_values(sets, columns.features, missing=True)
    estimator = getattr(estimators, str(TASKS[task].estimator))(by=columns.by)
    for option in options:
        if option not in estimator.get_params():
            raise typer.BadParameter(f"{task} has no such option.", param_hint=f"--{option.replace('_', '-')}")
    estimator.set_params(**options)
    X, z = sets.named(columns)
    y: Any = targets(task, sets, columns.target)
    if TASKS[task].per_member:
        y = np.split(y, np.cumsum(sets.sizes)[:-1])
    return estimator, (X, y, z), facts | roles | {"columns": described}


def _checkpoints(output: Path, resume: bool) -> Path:
    """The folder of the checkpoints; what an earlier fit left there is used only with --resume."""
    folder = output.absolute().with_name(f"{output.absolute().name}.checkpoint")
    if resume and not folder.is_dir():
        raise ValueError(f"there is nothing to resume: {folder} does not exist. Run the command without --resume.")
    if not resume and folder.is_dir():
        typer.echo(f"Note: {folder} of an interrupted fit is discarded; --resume would continue it.", err=True)
        shutil.rmtree(folder)
    return folder


def _summary(estimator: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    history = getattr(estimator, "history_", None)
    if history:
        out |= {"epochs": len(history), "training loss": float(history[-1]["loss"])}
    if hasattr(estimator, "head_weights_"):
        out["blend"] = {name: round(share, 3) for name, share in estimator.head_weights_.items()}
    return out


def _fit_expansion(
    table: Path,
    output: Path,
    by: str | None,
    element: str | None,
    method: str | None,
    epochs: int | None,
    seed: int,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Read the sets, show what they are, fit and save; parameters as on the command line."""
    from ..expand import Expander
    from ..expand.expander import METHODS

    methods = ("blend", *METHODS[:-1])  # the last one is for items with features
    method = method or methods[0]
    if method not in methods:
        raise typer.BadParameter(f"{method!r} is none of {', '.join(methods)}.", param_hint="--method")
    column, sets = read_elements(table, by, element)
    schema = overview(table, np.array([len(members) for members in sets]), "expansion")
    schema |= {"element": column, "elements": len({member for members in sets for member in members}), "method": method}
    if not as_json:
        show(schema, "Schema")
    start = time.perf_counter()
    expander = Expander(None if method == "blend" else (method,), epochs=epochs, random_state=seed).fit(sets)
    expander.columns_ = [by, element]
    save(expander, output, overwrite)
    result = {"model": str(output), "seconds": round(time.perf_counter() - start, 3)}
    show_result((schema if as_json else {}) | result, "\nFitted", as_json)
