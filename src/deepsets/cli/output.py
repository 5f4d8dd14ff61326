"""Output of the commands: results as a table or as JSON, and a progress bar where somebody is looking."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text


def show_table(rows: list[dict[str, Any]], title: str | None = None, *, header: bool = True) -> None:
    """Print rows with the same keys; as wide as needed where standard output is not a terminal."""
    table = Table(title=title, title_justify="left", show_header=header, box=None, padding=(0, 2, 0, 0))
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
def progress(what: str, total: int | None, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error, if that is a terminal; yields the function that advances it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = quiet or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), disable=hidden) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.update(task, advance=count)
