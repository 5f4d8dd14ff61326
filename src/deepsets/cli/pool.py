"""`deepsets pool`: a table to the states of its sets."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .options import Address, AsJson, By, EngineName, Overwrite, Workers, ZColumns, check_address, names
from .output import progress, show_result


def pool(
    model: Annotated[str, typer.Argument(help="A model folder with one prediction per set; path or URI.")],
    table: Annotated[str, typer.Argument(help="A table, or a folder of Parquet files; path or URI.")],
    output: Annotated[str, typer.Option("-o", "--output", help="A Parquet file; without extension a folder.")],
    merge: Annotated[str | None, typer.Option(help="Earlier states, to which these are added.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the rows from the states of --merge.")] = False,
    by: By = None,
    z_columns: ZColumns = None,
    engine: EngineName = "local",
    workers: Workers = None,
    address: Address = None,
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
    with progress("rows", None, as_json) as advance:
        result = distributed.pool(model, table, output, engine=run, progress=advance, overwrite=overwrite, **options)
    show_result(result, "Pooled", as_json)
