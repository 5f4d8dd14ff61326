"""`deepsets fit`: a table to a model folder."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .output import names, sentences, show, show_json


@sentences
def fit(
    table: Annotated[Path, typer.Argument(help="Parquet, CSV, Arrow/Feather, JSON lines or NPZ.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The model folder to write.")],
    target: Annotated[str | None, typer.Option(help="The column to learn (several for regression: a,b).")] = None,
    by: Annotated[str | None, typer.Option(help="The column that names the set, where a row is a member.")] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="set-regression, set-classification, member-regression, member-classification, odd-one-out or "
            "expansion; guessed from the target if not given."
        ),
    ] = None,
    features: Annotated[str | None, typer.Option(help="Feature columns: a,b (default: all others).")] = None,
    z_columns: Annotated[str | None, typer.Option(help="Columns known of the whole set: a,b.")] = None,
    element: Annotated[str | None, typer.Option(help="Expansion: the column of the elements.")] = None,
    method: Annotated[
        str | None, typer.Option(help="Expansion: bayesian-sets (default), deep-sets or nearest-vectors.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the sets.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same model.")] = 0,
    impute: Annotated[bool, typer.Option("--impute", help="Replace missing features by the training mean.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Learns from a table and writes a model folder.

    What was understood (sets, sizes, features, target, task) is shown before the training, so that mistakes are seen
    early. A row of the table is a member, and --by names its set; or a row is a set, and list columns hold its members.

    \b
    Examples:
      deepsets fit galaxies.parquet --by cluster_id --target z -o model/
      deepsets fit bags.csv --by bag --target active --features f1,f2 -o model/
      deepsets fit nested.jsonl --target label --epochs 50 --seed 1 -o model/
      deepsets fit sales.csv --task expansion --by receipt --element item -o model/
    """
    from .. import estimators, io
    from ..io import check_values
    from .expansion_task import fit_expansion
    from .tasks import EXPANSION, TASKS, check_target, guess, targets

    if task is not None and task not in (*TASKS, EXPANSION):
        raise typer.BadParameter(f"{task!r} is none of {', '.join([*TASKS, EXPANSION])}.", param_hint="--task")
    _check_options(task, target=target, features=features, z_columns=z_columns, element=element, method=method)
    io.check_free(output, overwrite)
    if not output.resolve().parent.is_dir():
        raise ValueError(f"the folder {output.resolve().parent} does not exist.")
    if task == EXPANSION:
        fit_expansion(table, output, by, element, method, epochs, seed, overwrite, as_json)
        return
    columns, sets = _read(table, by, names(features) or None, names(z_columns), names(target))
    task = task or guess(sets)
    schema = _schema(table, columns, sets, task)
    if not as_json:
        show(schema, "What is in the table")
    check_target(task, sets, columns.target)
    check_values(sets, columns.features, impute=impute, how="--impute replaces them by the training mean")
    model = getattr(estimators, TASKS[task])(
        by=columns.by,
        columns=columns.features,
        epochs=epochs,
        random_state=seed,
        impute=impute,
        verbose=sys.stderr.isatty() and not as_json,
    )
    start = time.perf_counter()
    model.fit(sets.X, targets(task, sets, columns.target), sets.z)
    model.feature_names_in_ = np.array(columns.features, dtype=object)
    model.context_names_in_, model.target_names_ = columns.z, columns.target
    io.save(model, output, overwrite)
    result = {
        "model": str(output),
        "epochs": len(model.history_),
        "training loss": float(model.history_[-1]["loss"]),
        "seconds": round(time.perf_counter() - start, 3),
    }
    if as_json:
        show_json(schema | {name.replace(" ", "_"): value for name, value in result.items()})
    else:
        show(result, "\nWhat was learnt")


def _check_options(task: str | None, **given: str | None) -> None:
    """An option that the task does not know, or lacks, is a command that was written wrong."""
    from .tasks import EXPANSION

    if task != EXPANSION and given["target"] is None:
        raise typer.BadParameter("say which column is to be learnt.", param_hint="--target")
    wrong = ("target", "features", "z_columns") if task == EXPANSION else ("element", "method")
    for name in wrong:
        if given[name] is not None:
            which = "not for" if task == EXPANSION else "for"
            raise typer.BadParameter(f"it is {which} --task {EXPANSION}.", param_hint=f"--{name.replace('_', '-')}")


def _read(path: Path, by: str | None, features: list[str] | None, z: list[str], target: list[str]) -> tuple[Any, Any]:
    from ..io import File, read, shape_of

    file = File(path)
    shape = shape_of(file)
    columns = shape.choose(by, features, z, target)
    return columns, read(file, shape, columns)


def _schema(path: Path, columns: Any, sets: Any, task: str) -> dict[str, Any]:
    sizes = sets.sizes
    return {
        "table": str(path),
        "sets": len(sets),
        "members": int(sizes.sum()),
        "sizes": {"min": int(sizes.min()), "median": float(np.median(sizes)), "max": int(sizes.max())},
        "features": columns.features,
        "z": columns.z,
        "target": columns.target,
        "labelled": int(min(len(t) - t.null_count for t in sets.targets)),
        "task": task,
    }
