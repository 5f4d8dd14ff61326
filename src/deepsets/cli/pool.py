"""`deepsets pool`: a table to the states of its sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .engine import Address, EngineName, Workers, engine_of
from .output import names, progress, sentences, show, show_json


@sentences
def pool(
    model: Annotated[Path, typer.Argument(help="A model folder of a task of sets.")],
    table: Annotated[Path, typer.Argument(help="A table, or a folder of Parquet files.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A Parquet file; without suffix a folder of them.")],
    merge: Annotated[Path | None, typer.Option(help="States of before, to which these are added.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the rows away from the states of --merge.")] = False,
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
    """Writes what the model knows of each set: a state, to which new rows can be added without the old ones.

    The rows of a set may stand anywhere in the table. `deepsets predict` answers from states as from rows. A run that
    was broken off is taken up by the same command. Taking rows away needs a pooling that is a sum (sum, mean, sqrt,
    std).

    \b
    Examples:
      deepsets pool model/ monday.parquet -o states.parquet
      deepsets pool model/ tuesday.parquet --merge states.parquet -o both.parquet
      deepsets predict model/ both.parquet -o answers.parquet
    """
    if remove and merge is None:
        raise typer.BadParameter("say by --merge from which states.", param_hint="--remove")
    where = engine_of(engine, workers, address, table)
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
