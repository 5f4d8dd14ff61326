"""`deepsets explain`: what each member contributes to the answer for its set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .output import names, sentences, show, show_json


@sentences
def explain(
    model: Annotated[Path, typer.Argument(help="A model folder of a task of sets.")],
    table: Annotated[Path, typer.Argument(help="Parquet, CSV, Arrow/Feather, JSON lines or NPZ.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The table to write; its suffix says how.")],
    by: Annotated[str | None, typer.Option(help="The column that names the set (default: as in the fit).")] = None,
    z_columns: Annotated[
        str | None, typer.Option(help="Columns known of the whole set (default: as in the fit).")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Writes for every member: the answer for its set, minus the answer without it.

    A positive number says that the member pushes the answer up (for classes: the probability of that class).

    \b
    Example:
      deepsets explain model/ bags.parquet -o contributions.parquet
    """
    from ..io import check_output
    from .inference import Question
    from .predict import write_answers

    check_output(output, overwrite)
    question = Question(model, table, by, names(z_columns))
    if not hasattr(question.model, "explain"):
        raise ValueError(f"explain is for models of sets; {model} holds a {type(question.model).__name__}.")
    result = write_answers(question, output, _contributions, quiet=as_json)
    if as_json:
        show_json(result)
    else:
        show(result, "Explained")


def _contributions(question: Any, part: Any) -> dict[str, Any]:
    from ..io import flat, naming, output_names

    values = flat(question.model.explain(part.X, part.z))
    out = naming(part, question.source.naming, per_member=True)
    if values.shape[1] == 1:
        return out | {"contribution": values[:, 0]}
    return out | {
        f"contribution_{name}": values[:, i] for i, name in enumerate(output_names(question.model, values.shape[1]))
    }
