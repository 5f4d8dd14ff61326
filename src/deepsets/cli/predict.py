"""`deepsets predict`: a model folder and a table to a table of answers, in bounded memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from .engine import Address, EngineName, Workers, engine_of
from .output import names, progress, sentences, show, show_json


@sentences
def predict(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    table: Annotated[Path, typer.Argument(help="Parquet, CSV, Arrow/Feather, JSON lines or NPZ; a folder; states.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The table to write; its suffix says how.")],
    by: Annotated[str | None, typer.Option(help="The column that names the set (default: as in the fit).")] = None,
    z_columns: Annotated[
        str | None, typer.Option(help="Columns known of the whole set (default: as in the fit).")
    ] = None,
    scattered: Annotated[bool, typer.Option("--scattered", help="The rows of a set may stand anywhere.")] = False,
    engine: EngineName = "local",
    workers: Workers = None,
    address: Address = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Writes the answers for all sets of a table, or all their members.

    Columns are found by name: their order does not matter, and others are ignored. The table is read in pieces, so it
    may be larger than memory; the output appears when it is complete. The rows of a set must be neighbours, unless
    --scattered is given; for a folder of Parquet files, and with --engine ray, they may always stand anywhere, and a
    run that was broken off is taken up by the same command. A table of states (`deepsets pool`) is answered too.

    \b
    Examples:
      deepsets predict model/ galaxies.parquet -o redshifts.parquet
      deepsets predict model/ bags.csv -o answers.csv --overwrite
      deepsets predict model/ shards/ -o answers/ --engine ray --address auto
    """
    where = engine_of(engine, workers, address, table)
    from ..distributed import is_states
    from ..io import check_output
    from .inference import Question

    if scattered or engine == "ray" or table.is_dir() or not output.suffix or is_states(table):
        from .. import distributed

        options = {"by": by, "z": names(z_columns), "engine": where, "overwrite": overwrite}
        with progress("rows", None, as_json) as move:
            result = distributed.predict(model, table, output, progress=move, **options)
    else:
        check_output(output, overwrite)
        question = Question(model, table, by, names(z_columns))
        result = write_answers(question, output, _answers, quiet=as_json)
    if as_json:
        show_json(result)
    else:
        show(result, "Predicted")


def write_answers(question: Any, output: Path, answer: Any, *, quiet: bool) -> dict[str, Any]:
    """Asks `answer(question, part)` for the columns of each piece of the table, and writes them."""
    import pyarrow as pa

    from ..io import writer

    start, sets, members = time.perf_counter(), 0, 0
    with progress("rows", question.rows, quiet) as move, writer(output) as write:
        for part in question.parts():
            write(pa.table(answer(question, part)))
            sets, members = sets + len(part), members + int(part.sizes.sum())
            move(len(part) if question.shape.nested else int(part.sizes.sum()))
    seconds = round(time.perf_counter() - start, 3)
    return {"output": str(output), "sets": sets, "members": members, "seconds": seconds}


def _answers(question: Any, part: Any) -> dict[str, Any]:
    from ..io import answers

    return answers(question.model, part, question.source.naming)
