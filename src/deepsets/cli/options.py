"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

ModelFolder = Annotated[Path, typer.Argument(help="A model folder.")]
Table = Annotated[Path, typer.Argument(help="Parquet, CSV, Arrow/Feather, JSON lines or NPZ.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="The table to write; format by extension.")]
By = Annotated[str | None, typer.Option(help="The column that names the set (default: as in the fit).")]
ZColumns = Annotated[str | None, typer.Option(help="Columns known of the whole set: a,b (default: as in the fit).")]
Element = Annotated[str | None, typer.Option(help="Expansion: the column of the elements.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the output.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
EngineName = Annotated[
    Literal["local", "ray", "spark"], typer.Option("--engine", help="This machine, a Ray or a Spark cluster.")
]
Workers = Annotated[int | None, typer.Option(help="Number of processes or cores (default: all).", min=1)]
Address = Annotated[
    str | None, typer.Option(help="A running Ray cluster or Spark master (default: one is started for this run).")
]


def check_address(engine: str, address: str | None) -> None:
    """Raise a usage error for an address that no engine would use."""
    if address is not None and engine == "local":
        raise typer.BadParameter("it needs --engine ray or --engine spark.", param_hint="--address")


def names(text: str | None) -> list[str]:
    """Split a list of names, ``a,b``."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]
