"""Answers for tables of any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..io.source import Source, table_files
from ..nn import DeepSet
from .engines import Engine
from .partition import PART
from .pool import predict_scattered
from .state_codec import load_answerer
from .whole import predict_whole


def predict(
    model: Any,
    table: str | Path,
    output: str | Path,
    *,
    by: str | None = None,
    features: Sequence[str] | None = None,
    z: Sequence[str] = (),
    engine: Engine = Engine(),  # noqa: B008  # it cannot change
    part: int = PART,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Writes the answers for all sets of a table, and says how many there are.

    model: a model folder, a fitted estimator or a `DeepSet`. table: a file, a folder of Parquet files, or a table of
    states that `pool` has written. The rows of a set may stand anywhere, and the answers are sorted by the names of the
    sets; models without states (of members, odd one out) want whole sets, and answer in the order of the table.
    output: a file, whose suffix says how, or a folder for Parquet files (a path without suffix).
    """
    given = load_answerer(model)
    if isinstance(given, DeepSet) or not getattr(given, "_PER_MEMBER", False):
        options: dict[str, Any] = {"by": by, "features": features, "z": z, "engine": engine, "part": part}
        return predict_scattered(model, table, output, overwrite=overwrite, progress=progress, **options)
    source = Source(given, table_files(table), by, features=features, z=z)
    return predict_whole(model, source, Path(output), engine, overwrite=overwrite, progress=progress)
