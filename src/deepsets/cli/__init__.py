"""The `deepsets` command: thin, one verb for each thing that can be done with a table of sets."""

from importlib.metadata import version
from typing import Annotated

import typer

from ._evaluate import evaluate
from ._expand import expand
from ._explain import explain
from ._export import export
from ._fit import fit
from ._paper import app as paper
from ._pool import pool
from ._predict import predict
from ._serve import serve

app = typer.Typer(
    name="deepsets",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(version("deepsets"))
        raise typer.Exit


@app.callback()
def main(
    which: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Learning on sets: from a table of members to a model, and from a model to answers."""


for verb in (fit, predict, pool, evaluate, explain, export, expand, serve):
    app.command()(verb)
app.add_typer(paper, name="paper")
