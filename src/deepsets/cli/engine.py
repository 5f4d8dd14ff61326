"""Options of the commands that run on an engine."""

from __future__ import annotations

from typing import Annotated, Any

import typer

EngineName = Annotated[str, typer.Option("--engine", help="local (this machine), ray or spark.")]
Workers = Annotated[int | None, typer.Option(help="Number of processes or cores (default: all).", min=1)]
Address = Annotated[
    str | None, typer.Option(help="A running Ray cluster or Spark master (default: one is started for this run).")
]


def check_engine(name: str, address: str | None) -> None:
    """Raise a usage error for options that do not go together.

    Parameters
    ----------
    name : str
        The engine.
    address : str or None
        Address of a cluster.
    """
    if name not in ("local", "ray", "spark"):
        raise typer.BadParameter(f"{name!r} is none of local, ray, spark.", param_hint="--engine")
    if address is not None and name == "local":
        raise typer.BadParameter("it needs --engine ray or --engine spark.", param_hint="--address")


def make_engine(name: str, workers: int | None, address: str | None) -> Any:
    """Create the engine.

    Parameters
    ----------
    name : str
        ``"local"``, ``"ray"`` or ``"spark"``.
    workers : int or None
        Number of processes or cores.
    address : str or None
        Address of a Ray cluster or Spark master.
    """
    check_engine(name, address)
    from ..distributed import Engine

    return Engine(name, workers, address)
