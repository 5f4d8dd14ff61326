"""`deepsets pool`: a table to the states of its sets."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .engine import Address, EngineName, Workers, make_engine
from .errors import user_errors
from .output import names, progress, show_result


@user_errors
def pool(
    model: Annotated[str, typer.Argument(help="A model folder with one prediction per set; path or URI.")],
    table: Annotated[str, typer.Argument(help="A table, or a folder of Parquet files; path or URI.")],
    output: Annotated[str, typer.Option("-o", "--output", help="A Parquet file; without extension a folder.")],
    merge: Annotated[str | None, typer.Option(help="Earlier states, to which these are added.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the rows from the states of --merge.")] = False,
    by: Annotated[str | None, typer.Option(help="The column that names the set (default: as in the fit).")] = None,
    z_columns: Annotated[
        str | None, typer.Option(help="Columns known of the whole set (default: as in the fit).")
    ] = None,
    engine: EngineName = "local",
    workers: Workers = None,
    address: Address = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
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
    run = make_engine(engine, workers, address)
    from .. import distributed

    options: dict[str, Any] = {
        "by": by,
        "z": names(z_columns),
        "merge": merge,
        "remove": remove,
        "overwrite": overwrite,
    }
    with progress("rows", None, as_json) as advance:
        result = distributed.pool(model, table, output, engine=run, progress=advance, **options)
    show_result(result, "Pooled", as_json)
