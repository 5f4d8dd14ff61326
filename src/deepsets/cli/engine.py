"""Options of the commands that run on an engine."""

from __future__ import annotations

from typing import Annotated, Any

import typer

EngineName = Annotated[str, typer.Option("--engine", help="local (this machine), ray or spark.")]
Workers = Annotated[int | None, typer.Option(help="Number of processes or cores (default: all).", min=1)]
Address = Annotated[
    str | None, typer.Option(help="A running Ray cluster or Spark master (default: one is started for this run).")
]


def engine_of(name: str, workers: int | None, address: str | None) -> Any:
    """Return the engine that the options describe, or raise a usage error.

    Parameters
    ----------
    name : str
        Value of ``--engine``.
    workers : int or None
        Value of ``--workers``.
    address : str or None
        Value of ``--address``.
    """
    if name not in ("local", "ray", "spark"):
        raise typer.BadParameter(f"{name!r} is not one of local, ray, spark.", param_hint="--engine")
    if address is not None and name == "local":
        raise typer.BadParameter("it is for --engine ray and --engine spark.", param_hint="--address")
    from ..distributed import Engine

    return Engine(name, workers, address)
