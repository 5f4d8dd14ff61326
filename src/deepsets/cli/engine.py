"""Options that say where the work is done."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

EngineName = Annotated[str, typer.Option("--engine", help="local (this machine) or ray (a cluster).")]
Workers = Annotated[int | None, typer.Option(help="Number of processes (default: one per core).", min=1)]
Address = Annotated[str | None, typer.Option(help="Address of a running Ray cluster (default: start one).")]


def check_engine(name: str, address: str | None) -> None:
    """Raise a usage error for options that do not go together.

    Parameters
    ----------
    name : str
        The engine.
    address : str or None
        Address of a cluster.
    """
    if name not in ("local", "ray"):
        raise typer.BadParameter(f"{name!r} is none of local, ray.", param_hint="--engine")
    if address is not None and name != "ray":
        raise typer.BadParameter("it needs --engine ray.", param_hint="--address")


def make_engine(name: str, workers: int | None, address: str | None, table: Path | None) -> Any:
    """Create the engine.

    Parameters
    ----------
    name : str
        ``"local"`` or ``"ray"``.
    workers : int or None
        Number of processes.
    address : str or None
        Address of a Ray cluster.
    table : Path or None
        The table; a folder is read by several processes.
    """
    check_engine(name, address)
    from ..distributed import Engine
    from ..distributed.worker_processes import start_server

    if name == "local" and workers != 1 and table is not None and table.is_dir():
        start_server()
    return Engine(name, workers, address)
