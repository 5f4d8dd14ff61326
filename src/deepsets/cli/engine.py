"""Options that say where the work is done."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..distributed.worker_processes import start_server

EngineName = Annotated[str, typer.Option("--engine", help="local (this machine) or ray (a cluster).")]
Workers = Annotated[int | None, typer.Option(help="How many processes (default: one for each core).", min=1)]
Address = Annotated[str | None, typer.Option(help="Of a Ray cluster that is there (default: one for this run).")]


def engine_of(name: str, workers: int | None, address: str | None, table: Path | None) -> Any:
    """The engine, or a word on how the command was written wrong. Asked before other imports."""
    if name not in ("local", "ray"):
        raise typer.BadParameter(f"{name!r} is none of local, ray.", param_hint="--engine")
    if address is not None and name != "ray":
        raise typer.BadParameter("it is for --engine ray.", param_hint="--address")
    if name == "local" and workers != 1 and table is not None and table.is_dir():
        start_server()
    from ..distributed import Engine

    return Engine(name, workers, address)
