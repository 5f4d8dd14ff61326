"""`deepsets predict`: a model folder and a table to a table of predictions, in bounded memory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .options import Address, AsJson, By, EngineName, Overwrite, Workers, ZColumns, check_address, names
from .output import progress, show_result


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
        with progress("rows", None, as_json) as advance:
            result = distributed.predict(model, table, output, progress=advance, **options)
    else:
        from ..io.predictions import prediction_columns
        from ..io.table_writer import check_output
        from .inference import InferenceJob

        check_output(Path(output), overwrite, [table])
        job = InferenceJob(Path(model), Path(table), by, names(z_columns))
        result = job.write(Path(output), prediction_columns, quiet=as_json)
    show_result(result, "Predicted", as_json)


def _is_states(table: Path) -> bool:
    """Whether a Parquet file holds states; the distributed code is imported only for these."""
    if table.suffix.lower() not in (".parquet", ".pq") or not table.is_file():
        return False
    from ..io.files import File

    metadata = File(table).schema.metadata or {}
    if not any(key.startswith(b"deepsets") for key in metadata):
        return False
    from ..distributed.jobs import states_header

    return states_header(table) is not None
