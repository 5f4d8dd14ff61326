"""Command line of the reproduction: `python -m paper list | run NAME | report`."""

import ast
import functools
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from . import NAMES, get_experiment, load_methods, records, rows, write_report
from . import run as run_experiment

app = typer.Typer(no_args_is_help=True, help="The experiments of the Deep Sets paper, with every baseline.")
Folder = Annotated[Path, typer.Option("--results", help="Folder of results.")]
Files = Annotated[
    list[Path] | None, typer.Option("--method-file", help="Python file that adds methods (may be repeated).")
]
_P = ParamSpec("_P")


def _errors(command: Callable[_P, None]) -> Callable[_P, None]:
    """End the command with exit code 1 and one sentence where the user can correct the input."""

    @functools.wraps(command)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (ValueError, OSError, ImportError) as error:
            typer.secho(f"Error: {error}", err=True, fg="red")
            raise typer.Exit(1) from None

    return wrapped


@app.command("list")
@_errors
def list_experiments(method_file: Files = None) -> None:
    """List the experiments and their methods."""
    from rich.console import Console
    from rich.table import Table

    for file in method_file or ():
        load_methods(file)
    table = Table("experiment", "section", "title", "methods", title="python -m paper run NAME", title_justify="left")
    for name in NAMES:
        about = get_experiment(name)
        table.add_row(name, about.section, about.title, " · ".join(about.methods))
    Console().print(table)


@app.command()
@_errors
def run(
    name: Annotated[str, typer.Argument(help="An experiment: `python -m paper list` names them.")],
    full: Annotated[bool, typer.Option("--full/--quick", help="The full protocol, or a form of seconds.")] = False,
    method: Annotated[list[str] | None, typer.Option(help="Only this method (may be repeated).")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Only this seed (may be repeated).")] = None,
    part: Annotated[list[str] | None, typer.Option(help="Only this part of the data (may be repeated).")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a setting of the methods.")
    ] = None,
    method_file: Files = None,
    models: Annotated[Path | None, typer.Option(help="Save trained models below this folder.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run from its checkpoint.")] = False,
    results: Folder = Path("results"),
) -> None:
    r"""Run an experiment; every method and seed writes one JSON below the folder of results.

    Parts that have a result are not run again: remove the JSON to repeat them.

    \b
    Examples:
      python -m paper run digits-text --method "Deep Sets" --set epochs=20
      python -m paper run digits-text --method-file my_method.py
      python -m paper run popstats --full --method SDM --seed 0 --resume
    """
    for file in method_file or ():
        load_methods(file)
    run_experiment(
        name, results, full=full, methods=method or (), seeds=seed or (), parts=part or (),
        settings=dict(map(_setting, settings or ())), models=models, resume=resume,
        progress=sys.stderr.isatty(), log=typer.echo,
    )  # fmt: skip


def _setting(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not sign or not key.isidentifier():
        raise ValueError(f"--set {text} is not of the form KEY=VALUE, for example --set epochs=200.")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


@app.command()
@_errors
def report(
    results: Folder = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print every row as JSON, and write nothing.")] = False,
) -> None:
    """Write RESULTS.md beside the folder of results, and report.html into it, from the records alone."""
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows(records(results))], ensure_ascii=False, indent=1))
        return
    for path in write_report(results):
        typer.echo(f"wrote {path}")


if __name__ == "__main__":
    app(prog_name="python -m paper")
