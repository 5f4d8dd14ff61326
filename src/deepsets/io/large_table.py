"""Tables of any size at any location, checked against a model before any work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .arrow_types import TableError, arrow
from .row_groups import ROW_NUMBER, batches, cut
from .source import Source
from .storage import list_files, read_footers


class Rows(Source):
    """Columns of rows that arrive as Arrow tables, as a model needs them.

    Parameters
    ----------
    head : pyarrow.Table
        The first rows.
    model, by, features, z, target
        As for :class:`Source`.
    """

    path = "the table"

    def __init__(
        self,
        head: Any,
        model: Any,
        by: str | None,
        features: Sequence[str] | None = None,
        z: Sequence[str] = (),
        target: Sequence[str] = (),
    ) -> None:
        self._head = head.slice(0, 100)
        super().__init__(model, [], by, features=features, z=z, target=target)

    def open(self, number: int) -> Any:
        """Return itself in place of a file: only a schema and first rows are needed."""
        return self

    @property
    def schema(self) -> Any:
        """Schema of the rows."""
        return self._head.schema

    def head(self, columns: list[str]) -> Any:
        """Return some columns of the first rows."""
        return self._head.select(columns)


class LargeTable:
    """Table of rows of sets in one or many files.

    Parameters
    ----------
    model : estimator, torch.nn.Module or None
        The model that will read it.
    table : str or Path
        Path or URI of a file, or of a folder of Parquet files.
    by, features, z
        As for :class:`Source`.

    Attributes
    ----------
    files : list of str
        Its files.
    columns : list of str
        Columns to read.
    by : str or None
        Column that names the set; None: a row is a set, named by its number.
    nested : bool
        Whether a row is a set.
    names : tuple
        Name of the set, features and z in the tables that are read.
    head : pyarrow.Table
        The first rows.
    file : File or None
        The open file, if it is not Parquet.
    """

    def __init__(
        self, model: Any, table: str | Path, by: str | None, features: Sequence[str] | None, z: Sequence[str]
    ) -> None:
        self.model, self.files, self.file = model, list_files(table), None
        first = cut(self.files)[0]
        if first.groups is None:
            self.file = Source(model, [Path(first.file)], by, features=features, z=z).open(0)
        head = arrow().Table.from_batches([next(batches(first, None, 100, self.file))])
        source = Rows(head, model, by, features, z)
        self.by, self.nested = source.columns.by, source.shape.nested
        self.columns = source.shape.inside(source.columns.all)
        self.names = (self.by or ROW_NUMBER, source.columns.features, source.columns.z)
        self.head = head.select(self.columns)
        if self.by is None:
            self.head = self.head.add_column(0, ROW_NUMBER, [np.arange(len(head))])
        for file, footer in zip(self.files, read_footers(self.files), strict=True) if first.groups else ():
            schema = footer.schema.to_arrow_schema()
            missing = [name for name in self.columns if name not in schema.names]
            if missing:
                raise TableError(f"{file} has no column {missing[0]!r}, which {first.file} has.")
            kind = schema.field(self.by).type if self.by and footer.num_rows else None
            if kind is not None and kind != head.schema.field(self.by).type:
                raise TableError(
                    f"column {self.by!r} holds {kind} in {file} and {head.schema.field(self.by).type} in {first.file}: "
                    "names of sets must be of one type."
                )

    def check_whole(self) -> None:
        """Raise a TableError if the rows of a set are not neighbours in one file."""
        if self.by is None or self.nested:
            return
        compute, runs = arrow().compute, []
        for part in cut(self.files, 1 << 62):
            last: Any = None
            for batch in batches(part, [self.by], file=self.file):
                names = batch.column(0)
                starts = compute.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False)
                runs.append(names.filter(arrow().array(np.concatenate([[names[0] != last], starts]))))
                last = names[-1]
        counts = arrow().chunked_array(runs).value_counts()
        twice = compute.index(compute.greater(counts.field("counts"), 1), True).as_py()
        if twice >= 0:
            raise TableError(
                f"the rows of set {counts.field('values')[twice].as_py()!r} are not neighbours in one file: this model "
                f"needs all members of a set at once. Sort the table by {self.by!r} first."
            )
