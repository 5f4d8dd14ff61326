"""`deepsets fit`: a table to a model folder."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from .errors import user_errors
from .output import names, show, show_result, show_rows


@user_errors
def fit(
    table: Annotated[Path, typer.Argument(help="Parquet, CSV, Arrow/Feather, JSON lines or NPZ.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The model folder to write.")],
    target: Annotated[str | None, typer.Option(help="The column to learn (several for regression: a,b).")] = None,
    by: Annotated[str | None, typer.Option(help="The column that names the set, where a row is a member.")] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="set-regression, set-classification, member-regression, member-classification, odd-one-out or "
            "expansion; by default guessed from the target."
        ),
    ] = None,
    features: Annotated[str | None, typer.Option(help="Feature columns: a,b (default: all others).")] = None,
    z_columns: Annotated[str | None, typer.Option(help="Columns known of the whole set: a,b.")] = None,
    element: Annotated[str | None, typer.Option(help="Expansion: the column of the elements.")] = None,
    method: Annotated[
        str | None, typer.Option(help="Expansion: bayesian-sets (default), deep-sets or nearest-vectors.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Tasks of sets: auto (default, a blend), deep, boosting, forest or linear.")
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
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
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
    from .. import io
    from ..files import locked
    from .fit_expansion import fit_expansion

    if task is not None and task not in io.TASKS:
        raise typer.BadParameter(f"{task!r} is none of {', '.join(io.TASKS)}.", param_hint="--task")
    _check_options(task, target=target, features=features, z_columns=z_columns, element=element, method=method)
    io.check_free(output, overwrite)
    io.check_folder(output)
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
            fit_expansion(table, output, by, element, method, epochs, seed, overwrite, as_json)
            return
        source = io.Source(None, [table], by, features=names(features), z=names(z_columns), target=names(target))
        job = _FitJob(source, task, chosen, seed, as_json)
        folder = _checkpoints(output, resume)
        try:
            result = job.run(folder)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"The same command with --resume continues from {folder}.") from None
        io.save(job.model, output, overwrite)
        shutil.rmtree(folder, ignore_errors=True)
    show_result((job.schema if as_json else {}) | {"model": str(output)} | result, "\nFitted", as_json)


def _checkpoints(output: Path, resume: bool) -> Path:
    """The folder of the checkpoints; what an earlier fit left there is used only with --resume."""
    folder = output.absolute().with_name(f"{output.absolute().name}.checkpoint")
    if resume and not folder.is_dir():
        raise ValueError(f"there is nothing to resume: {folder} does not exist. Run the command without --resume.")
    if not resume and folder.is_dir():
        typer.echo(f"Note: {folder} of an interrupted fit is discarded; --resume would continue it.", err=True)
        shutil.rmtree(folder)
    return folder


class _FitJob:
    """A table, its schema and the estimator for it."""

    def __init__(self, source: Any, task: str | None, options: dict[str, Any], seed: int, as_json: bool) -> None:
        from .. import estimators, io
        from .schema import describe, overview
        from .targets import check_target, guess_task, targets

        sets, columns = source.read(), source.columns
        task = task or guess_task(sets)
        described = describe(sets, columns)
        facts = overview(source.files[0], sets, task)
        if not as_json:
            show(facts, "Table")
            show_rows(described[:40], "\nColumns")
            if len(described) > 40:
                typer.echo(f"… and {len(described) - 40} more")
        roles = {"features": columns.features, "z": columns.z, "target": columns.target}
        self.schema = facts | roles | {"columns": described}
        check_target(task, sets, columns.target)
        io.check_values(sets, columns.features, missing=True)
        name = io.TASKS[task].estimator
        assert name is not None
        kind = getattr(estimators, name)
        for option in options:
            if option not in kind().get_params():
                raise typer.BadParameter(f"{task} has no such option.", param_hint=f"--{option.replace('_', '-')}")
        verbose = sys.stderr.isatty() and not as_json
        self.model = kind(by=columns.by, random_state=seed, verbose=verbose, **options)
        self.X, self.z = sets.named(columns)
        y = targets(task, sets, columns.target)
        self.y: Any = _split(y, sets.sizes) if io.TASKS[task].per_member else y
        self.targets = columns.target

    def run(self, checkpoints: Path) -> dict[str, Any]:
        """Fit; returns what is to be shown."""
        start = time.perf_counter()
        self.model.set_params(checkpoint_dir=str(checkpoints)).fit(self.X, self.y, z=self.z)
        self.model.target_names_ = self.targets
        out: dict[str, Any] = {}
        history = getattr(self.model, "history_", None)
        if history:
            out |= {"epochs": len(history), "training loss": float(history[-1]["loss"])}
        if hasattr(self.model, "head_weights_"):
            out["blend"] = {name: round(share, 3) for name, share in self.model.head_weights_.items()}
        return out | {"seconds": round(time.perf_counter() - start, 3)}


def _split(values: Any, sizes: Any) -> list[Any]:
    """Targets of members as one array per set."""
    import numpy as np

    return np.split(values, np.cumsum(sizes)[:-1])


def _check_options(task: str | None, **given: str | None) -> None:
    """Usage errors: an option that the task does not have, or needs."""
    expansion = task == "expansion"
    if not expansion and given["target"] is None:
        raise typer.BadParameter("name the column to learn.", param_hint="--target")
    for name in ("target", "features", "z_columns") if expansion else ("element", "method"):
        if given[name] is not None:
            which = "cannot be used with" if expansion else "needs"
            raise typer.BadParameter(f"it {which} --task expansion.", param_hint=f"--{name.replace('_', '-')}")
