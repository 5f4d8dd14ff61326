"""A model folder applied to a table, in batches of whole sets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..io import load
from ..io.reader import Source
from ..io.table_sets import TableSets
from ..io.table_writer import writer
from ..train.process import keep_memory
from .output import progress


class InferenceJob:
    """A fitted model and a table.

    Parameters
    ----------
    model, table : Path
        A model folder and a table.
    by : str or None
        Column that names the set; None: as in the fit.
    z : list of str
        Columns known of the whole set; empty: as in the fit.
    target : list of str or None
        Columns with the true values; an empty list: those of the fit; None: not needed.
    """

    def __init__(self, model: Path, table: Path, by: str | None, z: list[str], target: list[str] | None = None) -> None:
        keep_memory()  # this process does nothing else
        self.model = load(model)
        if hasattr(self.model, "expand"):
            raise ValueError(
                f"{model} holds a {type(self.model).__name__}, which completes sets: use `deepsets expand --model`."
            )
        if target is not None:
            target = target or list(getattr(self.model, "target_names_", []))
            if not target:
                raise ValueError(f"{model} does not know the column it was fitted on: give --target.")
        self.source = Source(self.model, [table], by, z=z, target=target or [])

    def parts(self, quiet: bool) -> Iterator[TableSets]:
        """Iterate over batches of whole sets, with a progress bar."""
        with progress("rows", self.source.open(0).rows, quiet) as advance:
            for part in self.source.batches():
                yield part
                advance(len(part) if self.source.shape.nested else int(part.sizes.sum()))

    def write(
        self, output: Path, columns: Callable[[Any, TableSets, str], dict[str, Any]], *, quiet: bool
    ) -> dict[str, Any]:
        """Write a table with the columns computed for each batch; returns what was done."""
        import pyarrow as pa

        start, sets, members = time.perf_counter(), 0, 0
        with writer(output) as write:
            for part in self.parts(quiet):
                write(pa.table(columns(self.model, part, self.source.naming)))
                sets, members = sets + len(part), members + int(part.sizes.sum())
        seconds = round(time.perf_counter() - start, 3)
        return {"output": str(output), "sets": sets, "members": members, "seconds": seconds}
