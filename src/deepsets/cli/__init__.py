"""The `deepsets` command: one module per subcommand."""

from importlib.metadata import version
from typing import Annotated

import typer

from ..nn.kernels import implementation
from .errors import Commands
from .evaluate import evaluate
from .expand import expand
from .export import export
from .fit import fit
from .predict import explain, pool, predict
from .serve import serve

__all__ = ["app"]

app = typer.Typer(
    cls=Commands, name="deepsets", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"deepsets {version('deepsets')} (kernels: {implementation()})")
        raise typer.Exit


@app.callback()
def main(
    which: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Learning on sets: from a table of members to a model, and from a model to predictions."""


for command in (fit, predict, pool, evaluate, explain, export, expand, serve):
    app.command()(command)
