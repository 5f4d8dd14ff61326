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
    model: Annotated[str, typer.Argument(help="Model folder; path or URI.")],
    table: Annotated[
        str, typer.Argument(help="Parquet, CSV, Arrow, JSON lines or NPZ; folder of Parquet files; states; path or URI.")
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="Table to write, in the format of its extension.")],
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
    """Predict for all sets of a table, or for all their members.

    Columns are found by name: their order does not matter, and others are ignored. The table is read in pieces, so it
    may be larger than memory; the output appears when it is complete. The rows of a set must be neighbours, unless
    --scattered is given; in a folder of Parquet files, and with --engine ray or spark, they may stand anywhere, and
    an interrupted run is resumed by the same command. Tables of states (`deepsets pool`) can be given too.

    \b
    Examples:
      deepsets predict model/ galaxies.parquet -o redshifts.parquet
      deepsets predict model/ bags.csv -o answers.csv --overwrite
      deepsets predict model/ shards/ -o predictions/ --engine ray --address auto
    """
    where = engine_of(engine, workers, address)
    from ..distributed import states_header
    from ..io import check_output
    from .inference import Question

    uris = any("://" in place for place in (model, table, output))
    folders = Path(table).is_dir() or not Path(output).suffix
    if scattered or engine != "local" or uris or folders or states_header(table) is not None:
        from .. import distributed

        options = {"by": by, "z": names(z_columns), "engine": where, "overwrite": overwrite}
        with progress("rows", None, as_json) as move:
            result = distributed.predict(model, table, output, progress=move, **options)
    else:
        check_output(Path(output), overwrite)
        question = Question(Path(model), Path(table), by, names(z_columns))
        result = write_answers(question, Path(output), _answers, quiet=as_json)
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
