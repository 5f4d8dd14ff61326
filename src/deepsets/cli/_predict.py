"""`deepsets predict`: a model folder and a table to a table of answers, in bounded memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ._say import names, progress, sentences, show, show_json


@sentences
def predict(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    table: Annotated[Path, typer.Argument(help="Parquet, CSV, Arrow/Feather, JSON lines or NPZ.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The table to write; its suffix says how.")],
    by: Annotated[str | None, typer.Option(help="The column that names the set (default: as in the fit).")] = None,
    z_columns: Annotated[
        str | None, typer.Option(help="Columns known of the whole set (default: as in the fit).")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Writes the answers for all sets of a table, or all their members.

    Columns are found by name: their order does not matter, and others are ignored. The table is read in pieces, so it
    may be larger than memory; the rows of a set must be neighbours. The output appears when it is complete.

    \b
    Examples:
      deepsets predict model/ galaxies.parquet -o redshifts.parquet
      deepsets predict model/ bags.csv -o answers.csv --overwrite
    """
    from ..tables import check_output
    from ._ask import Question

    check_output(output, overwrite)
    question = Question(model, table, by, names(z_columns))
    result = write_answers(question, output, answers, quiet=as_json)
    if as_json:
        show_json(result)
    else:
        show(result, "Predicted")


def write_answers(question: Any, output: Path, answer: Any, *, quiet: bool) -> dict[str, Any]:
    """Asks `answer(question, part)` for the columns of each piece of the table, and writes them."""
    import pyarrow as pa

    from ..tables import writer

    start, sets, members = time.perf_counter(), 0, 0
    with progress("rows", question.rows, quiet) as move, writer(output) as write:
        for part in question.parts():
            write(pa.table(answer(question, part)))
            sets, members = sets + len(part), members + int(part.sizes.sum())
            move(len(part) if question.shape.nested else int(part.sizes.sum()))
    seconds = round(time.perf_counter() - start, 3)
    return {"output": str(output), "sets": sets, "members": members, "seconds": seconds}


def answers(question: Any, part: Any) -> dict[str, Any]:
    """The columns of the answers for a piece: `prediction`, for classes also `probability_…`."""
    from ._ask import naming

    model, odd = question.model, type(question.model).__name__ == "OddOneOut"
    out = naming(question, part, model._PER_MEMBER and not odd)
    if odd:
        each = model.predict_proba(part.X, part.z)
        places = [int(p.argmax()) if len(p) else -1 for p in each]
        return out | {"prediction": places, "probability": [float(p.max()) if len(p) else None for p in each]}
    if hasattr(model, "classes_"):
        shares = flat(model.predict_proba(part.X, part.z))
        columns = {f"probability_{label}": shares[:, i] for i, label in enumerate(model.classes_)}
        return out | {"prediction": model.classes_[shares.argmax(1)], **columns}
    values = flat(model.predict(part.X, part.z))
    if values.ndim == 1:
        return out | {"prediction": values}
    return out | {f"prediction_{name}": values[:, i] for i, name in enumerate(output_names(model))}


def output_names(model: Any) -> list[str]:
    """A name for each number the model gives: its class, its target, or its number."""
    if hasattr(model, "classes_"):
        return [str(label) for label in model.classes_]
    named = list(getattr(model, "target_names_", []))
    return named if len(named) == model.n_outputs_ else [str(i) for i in range(model.n_outputs_)]


def flat(values: Any) -> np.ndarray:
    """Answers of members come as one array a set."""
    return np.concatenate(values) if isinstance(values, list) else values
