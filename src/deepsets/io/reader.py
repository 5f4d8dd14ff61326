"""The table reader: whole sets, all at once or in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .arrow_types import TableError, arrow
from .columns import Columns, Shape
from .files import File
from .table_sets import TableSets, identifiers, to_sets

MEMBERS = 50_000  # of a batch: 25 MB for a layer of 128 numbers


def read(file: File, shape: Shape, columns: Columns) -> TableSets:
    """Read all sets of a file; rows of a set need not be adjacent.

    Parameters
    ----------
    file : File
        The table.
    shape : Shape
        Its layout.
    columns : Columns
        Roles of its columns.
    """
    table = file.read(shape.inside(columns.all))
    if table.num_rows == 0:
        raise TableError(f"{file.path} has no rows, so there are no sets.")
    return to_sets(table, shape, columns)


def stream(file: File, shape: Shape, columns: Columns, members: int | None = None) -> Iterator[TableSets]:
    """Read batches of whole sets, in the order of the file.

    Memory: one such batch (at least the largest set), what is read ahead, and 8 bytes per set. In a table with one
    row per member the rows of a set must be adjacent; a set that occurs again after others is an error.

    Parameters
    ----------
    file : File
        The table.
    shape : Shape
        Its layout.
    columns : Columns
        Roles of its columns.
    members : int, default=50_000
        About how many members a batch has.
    """
    members = MEMBERS if members is None else members
    parts = _nested(file, shape, columns, members) if shape.nested else _long(file, shape, columns, members)
    empty = True
    for part in parts:
        empty = False
        yield part
    if empty:
        raise TableError(f"{file.path} has no rows, so there are no sets.")


def _nested(file: File, shape: Shape, columns: Columns, members: int) -> Iterator[TableSets]:
    waiting: list[Any] = []
    count = first = 0
    inside = shape.inside(columns.features[:1])[0]
    for batch in file.batches(shape.inside(columns.all), rows=64):
        waiting.append(batch)
        count += len(batch[inside].flatten())
        if count >= members:
            table = arrow().Table.from_batches(waiting)
            yield to_sets(table, shape, columns, first)
            waiting, count, first = [], 0, first + len(table)
    if waiting and sum(map(len, waiting)):
        yield to_sets(arrow().Table.from_batches(waiting), shape, columns, first)


def _long(file: File, shape: Shape, columns: Columns, members: int) -> Iterator[TableSets]:
    assert columns.by is not None
    inside = shape.inside([columns.by])[0]
    seen = SeenNames(columns.by)
    waiting: list[Any] = []
    first = rows = cut = 0  # the first row that waits, how many do, and where among them the last set begins
    last: Any = None
    for batch in file.batches(shape.inside(columns.all), rows=8192):
        if len(batch) == 0:
            continue
        names, starts = _runs(batch[inside], columns.by, first + rows)
        old = int(rows > 0 and names[0] == last)  # the last set of the batch before continues
        seen.add(names[old:], first + rows + starts[old:])
        cut = rows + int(starts[-1]) if len(starts) > old else cut
        waiting.append(batch)
        rows, last = rows + len(batch), names[-1]
        if rows >= members and cut:
            table = arrow().Table.from_batches(waiting)
            yield to_sets(table.slice(0, cut), shape, columns, first)
            waiting, first, rows, cut = table.slice(cut).to_batches(), first + cut, rows - cut, 0
    if rows:
        yield to_sets(arrow().Table.from_batches(waiting), shape, columns, first)


def _runs(column: Any, by: str, first: int) -> tuple[Any, np.ndarray]:
    """The name of each run of equal names, and the row where it begins."""
    codes = identifiers(column, by, first).dictionary_encode()
    starts = np.concatenate([[0], np.flatnonzero(np.diff(codes.indices.to_numpy())) + 1])
    return codes.take(arrow().array(starts)).dictionary_decode(), starts


class SeenNames:
    """Names of the sets seen so far, at 8 bytes each: sorted arrays, each at least twice as long as the next.

    Parameters
    ----------
    by : str
        The column with the names, for messages.
    """

    def __init__(self, by: str) -> None:
        self.by = by
        self.parts: list[np.ndarray] = []

    def add(self, ids: Any, rows: np.ndarray) -> None:
        """Add names of sets; a name that was seen before is an error.

        Parameters
        ----------
        ids : pyarrow.Array
            The names.
        rows : ndarray of int
            The rows where these sets begin.
        """
        if len(ids) == 0:
            return
        keys = _keys(ids)
        order = np.argsort(keys, kind="stable")
        new = keys[order]
        again = np.zeros(len(new), dtype=bool)
        again[1:] = new[1:] == new[:-1]
        for part in self.parts:
            again |= part[np.searchsorted(part, new).clip(max=len(part) - 1)] == new
        if again.any():
            place = int(order[again].min())
            raise TableError(
                f"set {ids[place].as_py()!r} occurs again in row {int(rows[place])} after other sets: to read a table "
                f"in pieces, the rows of a set must be adjacent. Sort the table by {self.by!r}, or predict with "
                "--scattered."
            )
        self.parts.append(new)
        while len(self.parts) > 1 and len(self.parts[-2]) < 2 * len(self.parts[-1]):
            self.parts[-2:] = [np.sort(np.concatenate(self.parts[-2:]), kind="stable")]


def _keys(ids: Any) -> np.ndarray:
    """64 bits for each name: integers as they are, others by hash (10 million names collide once in 4e5)."""
    if arrow().types.is_integer(ids.type):
        return ids.to_numpy().astype(np.int64)
    return np.fromiter((hash(str(name)) for name in ids.to_pylist()), np.int64, len(ids))
