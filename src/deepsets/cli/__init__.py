"""The `deepsets` command: thin, one verb for each thing that can be done with a table of sets."""

from importlib.metadata import version
from typing import Annotated

import typer

from ..nn.kernels import implementation
from .evaluate import evaluate
from .expand import expand
from .explain import explain
from .export import export
from .fit import fit
from .pool import pool
from .predict import predict
from .serve import serve

app = typer.Typer(
    name="deepsets",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"deepsets {version('deepsets')} (kernels: {implementation()})")
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
