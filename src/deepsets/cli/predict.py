"""`deepsets predict`, `pool` and `explain`: a model folder applied to a table, in bounded memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ..io import load
from ..io.files import File
from ..io.predictions import flatten, naming_columns, output_names, prediction_columns
from ..io.reader import Source
from ..io.table_sets import TableSets
from ..io.table_writer import check_output, writer
from ..train.process import keep_memory
from .console import (
    Address,
    AsJson,
    By,
    EngineName,
    ModelFolder,
    Output,
    Overwrite,
    Table,
    Workers,
    ZColumns,
    check_address,
    names,
    progress,
    show_result,
)


def predict(
    model: Annotated[str, typer.Argument(help="A model folder; path or URI.")],
    table: Annotated[
        str, typer.Argument(help="Parquet, CSV, Arrow/Feather, JSON lines or NPZ; a folder; states; path or URI.")
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="The table to write; format by extension.")],
    by: By = None,
    z_columns: ZColumns = None,
    scattered: Annotated[bool, typer.Option("--scattered", help="The rows of a set need not be adjacent.")] = False,
    engine: EngineName = "local",
    workers: Workers = None,
    address: Address = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write predictions for all sets of a table, or all their members.

    Columns are found by name: their order does not matter, and other columns are ignored. The table is read in pieces,
    so it may be larger than memory; the output appears when it is complete. The rows of a set must be adjacent, unless
    --scattered is given; in a folder of Parquet files, and with --engine ray or spark, they may be anywhere. An
    interrupted run of the local engine is resumed by the same command. A table of states (`deepsets pool`) is accepted
    too.

    \b
    Examples:
      deepsets predict model/ galaxies.parquet -o redshifts.parquet
      deepsets predict model/ bags.csv -o predictions.csv --overwrite
      deepsets predict model/ shards/ -o predictions/ --engine ray --address auto
    """
    check_address(engine, address)
    uris = any("://" in place for place in (model, table, output))
    folders = Path(table).is_dir() or not Path(output).suffix
    if scattered or engine != "local" or uris or folders or _is_states(Path(table)):
        from .. import distributed

        run = distributed.Engine(engine, workers, address)
        options: dict[str, Any] = {"by": by, "z": names(z_columns), "engine": run, "overwrite": overwrite}
        with progress("rows", None, as_json or engine != "local") as advance:
            result = distributed.predict(model, table, output, progress=advance, **options)
    else:
        check_output(Path(output), overwrite, [table])
        job = InferenceJob(Path(model), Path(table), by, names(z_columns))
        result = job.write(Path(output), prediction_columns, quiet=as_json)
    show_result(result, "Predicted", as_json)


def pool(
    model: Annotated[str, typer.Argument(help="A model folder with one prediction per set; path or URI.")],
    table: Annotated[str, typer.Argument(help="A table, or a folder of Parquet files; path or URI.")],
    output: Annotated[str, typer.Option("-o", "--output", help="A Parquet file; without extension a folder.")],
    by: By = None,
    z_columns: ZColumns = None,
    engine: EngineName = "local",
    workers: Workers = None,
    address: Address = None,
    merge: Annotated[str | None, typer.Option(help="Earlier states, to which these are added.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the rows from the states of --merge.")] = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write the state of each set, to which new rows can be added without the old ones.

    The rows of a set may be anywhere in the table. `deepsets predict` accepts states instead of rows. An interrupted
    run is resumed by the same command. Removing rows needs a pooling that is a sum (sum, mean, sqrt, std).

    \b
    Examples:
      deepsets pool model/ monday.parquet -o states.parquet
      deepsets pool model/ tuesday.parquet --merge states.parquet -o both.parquet
      deepsets predict model/ both.parquet -o predictions.parquet
    """
    if remove and merge is None:
        raise typer.BadParameter("--merge must name the states to remove from.", param_hint="--remove")
    check_address(engine, address)
    from .. import distributed

    options: dict[str, Any] = {"by": by, "z": names(z_columns), "merge": merge, "remove": remove}
    run = distributed.Engine(engine, workers, address)
    with progress("rows", None, as_json or engine != "local") as advance:
        result = distributed.pool(model, table, output, engine=run, progress=advance, overwrite=overwrite, **options)
    show_result(result, "Pooled", as_json)


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
    check_output(output, overwrite, [table])
    job = InferenceJob(model, table, by, names(z_columns))
    if not hasattr(job.model, "explain"):
        raise ValueError(
            f"explain needs a model with one prediction per set; {model} holds a {type(job.model).__name__}."
        )
    show_result(job.write(output, _contributions, quiet=as_json), "Explained", as_json)


def _is_states(table: Path) -> bool:
    """Whether a Parquet file holds states; the distributed code is imported only for these."""
    if table.suffix.lower() not in (".parquet", ".pq") or not table.is_file():
        return False
    metadata = File(table).schema.metadata or {}
    if not any(key.startswith(b"deepsets") for key in metadata):
        return False
    from ..distributed.jobs import states_header

    return states_header(table) is not None


def _contributions(model: Any, part: Any, by: str) -> dict[str, Any]:
    values = flatten(model.explain(part.X, z=part.z))
    values = values.reshape(len(values), -1)
    out = naming_columns(part, by, per_member=True)
    if values.shape[1] == 1:
        return out | {"contribution": values[:, 0]}
    return out | {f"contribution_{name}": values[:, i] for i, name in enumerate(output_names(model, values.shape[1]))}


class InferenceJob:
    """A fitted model and a table.

    Parameters
    ----------
    model, table : Path
        A model folder and a table.
    by : str or None
        Column that names the set; None: as in the fit.
    z : list of str
        Columns known of the whole set; empty: as in the fit.
    target : list of str or None
        Columns with the true values; an empty list: those of the fit; None: not needed.
    """

    def __init__(self, model: Path, table: Path, by: str | None, z: list[str], target: list[str] | None = None) -> None:
        keep_memory()  # this process does nothing else
        self.model = load(model)
        if hasattr(self.model, "expand"):
            raise ValueError(
                f"{model} holds a {type(self.model).__name__}, which completes sets: use `deepsets expand --model`."
            )
        if target is not None:
            target = target or list(getattr(self.model, "target_names_", []))
            if not target:
                raise ValueError(f"{model} does not know the column it was fitted on: give --target.")
        self.source = Source(self.model, [table], by, z=z, target=target or [])

    def parts(self, quiet: bool) -> Iterator[TableSets]:
        """Iterate over batches of whole sets, with a progress bar."""
        with progress("rows", self.source.open(0).rows, quiet) as advance:
            for part in self.source.batches():
                yield part
                advance(len(part) if self.source.shape.nested else int(part.sizes.sum()))

    def write(
        self, output: Path, columns: Callable[[Any, TableSets, str], dict[str, Any]], *, quiet: bool
    ) -> dict[str, Any]:
        """Write a table with the columns computed for each batch; returns what was done."""
        import pyarrow as pa

        start, sets, members = time.perf_counter(), 0, 0
        with writer(output) as write:
            for part in self.parts(quiet):
                write(pa.table(columns(self.model, part, self.source.naming)))
                sets, members = sets + len(part), members + int(part.sizes.sum())
        seconds = round(time.perf_counter() - start, 3)
        return {"output": str(output), "sets": sets, "members": members, "seconds": seconds}
