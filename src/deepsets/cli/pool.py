"""`deepsets pool`: write the states of the sets of a table."""

from __future__ import annotations

from typing import Annotated

import typer

from .engine import Address, EngineName, Workers, engine_of
from .output import names, progress, sentences, show, show_json


@sentences
def pool(
    model: Annotated[str, typer.Argument(help="Model folder of an estimator for sets; path or URI.")],
    table: Annotated[str, typer.Argument(help="Table, or folder of Parquet files; path or URI.")],
    output: Annotated[str, typer.Option("-o", "--output", help="Parquet file; without extension a folder of them.")],
    merge: Annotated[str | None, typer.Option(help="States written before, to which the rows are added.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the rows from the states of --merge.")] = False,
    by: Annotated[str | None, typer.Option(help="Column that names the set (default: that of the fit).")] = None,
    z_columns: Annotated[
        str | None, typer.Option(help="Columns known of the whole set (default: those of the fit).")
    ] = None,
    engine: EngineName = "local",
    workers: Workers = None,
    address: Address = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write the state of each set, to which new rows can be added without the old ones.

    The rows of a set may stand anywhere in the table. `deepsets predict` takes states in place of rows. An
    interrupted run is resumed by the same command. Removing rows needs a pooling that is a sum (sum, mean, sqrt, std).

    \b
    Examples:
      deepsets pool model/ monday.parquet -o states.parquet
      deepsets pool model/ tuesday.parquet --merge states.parquet -o both.parquet
      deepsets predict model/ both.parquet -o predictions.parquet
    """
    if remove and merge is None:
        raise typer.BadParameter("it needs --merge, the states from which rows are removed.", param_hint="--remove")
    where = engine_of(engine, workers, address)
    from .. import distributed

    with progress("rows", None, as_json) as move:
        result = distributed.pool(
            model,
            table,
            output,
            by=by,
            z=names(z_columns),
            merge=merge,
            remove=remove,
            engine=where,
            overwrite=overwrite,
            progress=move,
        )
    if as_json:
        show_json(result)
    else:
        show(result, "Pooled")
