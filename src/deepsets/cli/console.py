"""What commands share: options, output as tables or JSON, and a progress bar."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import rich.table
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

ModelFolder = Annotated[Path, typer.Argument(help="A model folder.")]
Table = Annotated[Path, typer.Argument(help="Parquet, CSV, Arrow/Feather, JSON lines or NPZ.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="The table to write; format by extension.")]
By = Annotated[str | None, typer.Option(help="The column that names the set (default: as in the fit).")]
ZColumns = Annotated[str | None, typer.Option(help="Columns known of the whole set: a,b (default: as in the fit).")]
Element = Annotated[str | None, typer.Option(help="Expansion: the column of the elements.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the output.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
EngineName = Annotated[
    Literal["local", "ray", "spark"], typer.Option("--engine", help="This machine, a Ray or a Spark cluster.")
]
Workers = Annotated[int | None, typer.Option(help="Number of processes or cores (default: all).", min=1)]
Address = Annotated[
    str | None, typer.Option(help="A running Ray cluster or Spark master (default: one is started for this run).")
]


def check_address(engine: str, address: str | None) -> None:
    """Raise a usage error for an address that no engine would use."""
    if address is not None and engine == "local":
        raise typer.BadParameter("it needs --engine ray or --engine spark.", param_hint="--address")


def names(text: str | None) -> list[str]:
    """Split a list of names, ``a,b``."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def show_table(rows: list[dict[str, Any]], title: str | None = None, *, header: bool = True) -> None:
    """Print rows with the same keys; as wide as needed where standard output is not a terminal."""
    table = rich.table.Table(title=title, title_justify="left", show_header=header, box=None, padding=(0, 2, 0, 0))
    for i, name in enumerate(rows[0]):
        table.add_column(name, justify="right" if header and i else "left")
    for row in rows:
        table.add_row(*(value if isinstance(value, Text) else Text(_text(value)) for value in row.values()))
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def show(facts: dict[str, Any], title: str) -> None:
    """Print names and values, one per line."""
    rows = [{"name": Text(name, style="bold"), "value": value} for name, value in facts.items()]
    show_table(rows, title, header=False)


def show_json(facts: Any) -> None:
    """Print one JSON value on standard output."""
    typer.echo(json.dumps(facts, ensure_ascii=False, indent=1))


def show_result(facts: dict[str, Any], title: str, as_json: bool) -> None:
    """Print the result of a command as JSON or as a table."""
    if as_json:
        show_json({name.replace(" ", "_"): value for name, value in facts.items()})
    else:
        show(facts, title)


def _text(value: Any) -> str:
    if value is None or value == []:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(map(str, value[:20])) + (f" and {len(value) - 20} more" if len(value) > 20 else "")
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(part)}" for name, part in value.items())
    return str(value)


@contextmanager
def progress(what: str, total: int | None, quiet: bool) -> Iterator[Callable[..., None]]:
    """Show a progress bar on standard error, if that is a terminal; yields the function that advances it.

    Its second argument is the total, where that is known only later.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = quiet or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), disable=hidden) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count, total=total: bar.update(task, advance=count, total=total)
