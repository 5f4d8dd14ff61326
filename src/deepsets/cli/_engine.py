"""Options that say where the work is done."""

from __future__ import annotations

from typing import Annotated, Any

import typer

EngineName = Annotated[str, typer.Option("--engine", help="local (this machine) or ray (a cluster).")]
Workers = Annotated[int | None, typer.Option(help="How many processes (default: one for each core).", min=1)]
Address = Annotated[str | None, typer.Option(help="Of a Ray cluster that is there (default: one for this run).")]


def engine_of(name: str, workers: int | None, address: str | None) -> Any:
    """The engine, or a word on how the command was written wrong."""
    from ..scale import Engine

    if name not in ("local", "ray"):
        raise typer.BadParameter(f"{name!r} is none of local, ray.", param_hint="--engine")
    if address is not None and name != "ray":
        raise typer.BadParameter("it is for --engine ray.", param_hint="--address")
    return Engine(name, workers, address)
