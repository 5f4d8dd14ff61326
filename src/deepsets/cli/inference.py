"""A model folder and a table brought together, by streaming whole sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .. import io
from ..io import Source, TableSets, stream
from ..train import keep_memory


class Question:
    """A fitted model asked about a table."""

    def __init__(self, model: Path, table: Path, by: str | None, z: list[str], target: list[str] | None = None) -> None:
        """target: the columns with the truth; an empty list: those of the fit."""
        keep_memory()  # this process does nothing else
        self.model = io.load(model)
        if target is not None:
            target = target or list(getattr(self.model, "target_names_", []))
            if not target:
                raise ValueError(f"{model} does not say what it was fitted on: give --target.")
        self.source = Source(self.model, [table], by, z=z, target=target or [])
        self.file, self.shape, self.columns = self.source.open(0), self.source.shape, self.source.columns

    @property
    def rows(self) -> int | None:
        """Rows of the table, where they are known without reading it."""
        return self.file.rows

    def parts(self) -> Iterator[TableSets]:
        """Batches of whole sets, checked."""
        for part in stream(self.file, self.shape, self.columns):
            yield self.source.check(part)
