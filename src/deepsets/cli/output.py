"""Output of the commands: results as a table or as JSON, and a progress bar where somebody is looking."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer


def show(facts: dict[str, Any], title: str) -> None:
    """Print names and values, one per line.

    Parameters
    ----------
    facts : dict
        What to print.
    title : str
        The line above.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in facts.items():
        table.add_row(Text(name, style="bold"), Text(_text(value)))
    _console().print(table)


def show_rows(rows: list[dict[str, Any]], title: str) -> None:
    """Print a table with a header.

    Parameters
    ----------
    rows : list of dict
        The rows, with the same keys.
    title : str
        The line above.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in rows[0]:
        table.add_column(name, justify="left" if name == next(iter(rows[0])) else "right")
    for row in rows:
        table.add_row(*(Text(_text(value)) for value in row.values()))
    _console().print(table)


def _console() -> Any:
    """Standard output; as wide as needed where it is not a terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 200)


def show_json(facts: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Print one JSON value on standard output.

    Parameters
    ----------
    facts : dict or list of dict
        What to print.
    """
    typer.echo(json.dumps(facts, ensure_ascii=False, indent=1))


def show_result(facts: dict[str, Any], title: str, as_json: bool) -> None:
    """Print the result of a command as JSON or as a table.

    Parameters
    ----------
    facts : dict
        The result.
    title : str
        Title of the table.
    as_json : bool
        Whether to print JSON.
    """
    if as_json:
        show_json({name.replace(" ", "_"): value for name, value in facts.items()})
    else:
        show(facts, title)


def _text(value: Any) -> str:
    if value is None or value == []:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
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
    """Show a progress bar on standard error, if that is a terminal.

    Parameters
    ----------
    what : str
        What is counted.
    total : int or None
        How many there are, if known.
    quiet : bool
        Whether to show nothing.

    Yields
    ------
    callable
        Function that advances the bar by a number.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = quiet or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), disable=hidden) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.update(task, advance=count)


def names(text: str | None) -> list[str]:
    """Split a list of names, ``a,b``.

    Parameters
    ----------
    text : str or None
        Names separated by commas.
    """
    return [name.strip() for name in (text or "").split(",") if name.strip()]
