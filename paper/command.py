"""`deepsets paper`: the paper's experiments, run and reported."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from deepsets.cli.output import sentences, show_json

app = typer.Typer(no_args_is_help=True, help="The experiments of the Deep Sets paper, with every baseline.")
Folder = Annotated[Path, typer.Option("--results", help="The folder of results.")]


@app.command("list")
@sentences
def list_experiments() -> None:
    """Names the experiments and their methods."""
    from rich.console import Console
    from rich.table import Table

    from . import NAMES, experiment

    table = Table("experiment", "section", "what", "methods", title="deepsets paper run NAME", title_justify="left")
    for name in NAMES:
        about = experiment(name)
        table.add_row(name, about.section, about.title, " · ".join(about.methods))
    Console().print(table)


@app.command()
@sentences
def run(
    name: Annotated[str, typer.Argument(help="An experiment: `deepsets paper list` names them.")],
    full: Annotated[bool, typer.Option("--full/--quick", help="The real protocol, or a form of seconds.")] = False,
    method: Annotated[list[str] | None, typer.Option(help="Only this method (may be repeated).")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Only this seed (may be repeated).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint of an interrupted run.")] = False,
    results: Folder = Path("results"),
) -> None:
    """Runs an experiment; every method and seed leaves one JSON below the folder of results.

    What is done is not done again: remove a JSON to have its run repeated.

    \b
    Examples:
      deepsets paper run digits-text
      deepsets paper run popstats --full --method "Deep Sets" --method SDM --seed 0 --resume
    """
    import sys

    import paper

    paper.run(
        name,
        results,
        full=full,
        methods=method or (),
        seeds=seed or (),
        resume=resume,
        progress=sys.stderr.isatty(),
        say=typer.echo,
    )


@app.command()
@sentences
def report(
    results: Folder = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print every row as JSON, and write nothing.")] = False,
) -> None:
    """Writes RESULTS.md beside the results, and report.html into them, from the JSONs alone."""
    import paper

    if as_json:
        show_json([asdict(row) for row in paper.rows(paper.records(results))])
        return
    for path in paper.report(results):
        typer.echo(f"wrote {path}")
