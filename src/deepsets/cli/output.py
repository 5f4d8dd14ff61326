"""How the commands speak: errors as one sentence, results as a table or as JSON, a bar where somebody is looking."""

from __future__ import annotations

import functools
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec

import typer

_P = ParamSpec("_P")


def sentences(command: Callable[_P, None]) -> Callable[_P, None]:
    """What the user can mend ends the command with exit code 1 and a sentence; bugs keep their traceback."""

    @functools.wraps(command)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> None:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: typer.echo(f"Note: {message}", err=True)
            try:
                command(*args, **kwargs)
            except (ValueError, OSError, ImportError) as error:
                typer.secho(f"Error: {error}", err=True, fg="red")
                raise typer.Exit(1) from None

    return wrapped


def show(facts: dict[str, Any], title: str) -> None:
    """Names and values, one a line."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in facts.items():
        table.add_row(Text(name, style="bold"), Text(_text(value)))
    Console().print(table)


def show_json(facts: dict[str, Any] | list[dict[str, Any]]) -> None:
    """One JSON value on standard output."""
    typer.echo(json.dumps(facts, ensure_ascii=False, indent=1))


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
    """A bar on standard error, if that is a terminal; gives the function to move it on."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = quiet or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), disable=hidden) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.update(task, advance=count)


def names(text: str | None) -> list[str]:
    """`a,b` -> two names."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]
