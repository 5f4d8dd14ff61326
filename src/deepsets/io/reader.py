"""Tables as whole sets: all at once, or in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .columns import Columns, Shape
from .files import File, arrow
from .table_sets import TableSets, to_sets

MEMBERS = 50_000  # in a batch: 25 MB for a layer of 128 numbers


def read(file: File, shape: Shape, columns: Columns) -> TableSets:
    """All sets of a file; rows of a set need not be neighbours."""
    table = file.read(shape.inside(columns.all))
    if table.num_rows == 0:
        raise ValueError(f"{file.path} has no rows, so there are no sets.")
    return to_sets(table, shape, columns)


def stream(file: File, shape: Shape, columns: Columns, members: int = MEMBERS) -> Iterator[TableSets]:
    """Batches of whole sets with about `members` members, in the order of the file.

    Memory: one such batch (at least the largest set), what is read ahead, and 8 bytes a set. In a table with a row
    for each member the rows of a set must be neighbours; a set that comes again after others is an error.
    """
    parts = _nested(file, shape, columns, members) if shape.nested else _long(file, shape, columns, members)
    empty = True
    for part in parts:
        empty = False
        yield part
    if empty:
        raise ValueError(f"{file.path} has no rows, so there are no sets.")


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
    seen = _Seen(columns.by)
    waiting: list[Any] = []
    first = rows = cut = 0  # the first row that waits, how many do, and where among them the last set begins
    last: Any = None
    for batch in file.batches(shape.inside(columns.all), rows=8192):
        if len(batch) == 0:
            continue
        names, starts = _runs(batch[inside], columns.by, first + rows)
        old = int(rows > 0 and names[0] == last)  # the set at the end of the batch before goes on
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
    """Of each run of equal names: the name, and the row where it begins."""
    pa = arrow()
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    codes = column.dictionary_encode()
    if codes.null_count:
        raise ValueError(f"row {first + codes.is_null().index(True).as_py()} has no value in the set column {by!r}.")
    starts = np.concatenate([[0], np.flatnonzero(np.diff(codes.indices.to_numpy())) + 1])
    return column.take(pa.array(starts)), starts


class _Seen:
    """The names of the sets that have come by, 8 bytes each: sorted arrays, each twice as long as the next or more."""

    def __init__(self, by: str) -> None:
        self.by = by
        self.parts: list[np.ndarray] = []

    def add(self, ids: Any, rows: np.ndarray) -> None:
        """Names of sets, and the rows where they begin; one that has been seen is an error."""
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
            raise ValueError(
                f"the set {ids[place].as_py()!r} comes again in row {int(rows[place])} after other sets: a table is "
                f"read in pieces, so the rows of a set must be neighbours. Sort it by {self.by!r} first, or "
                "predict with --scattered."
            )
        self.parts.append(new)
        while len(self.parts) > 1 and len(self.parts[-2]) < 2 * len(self.parts[-1]):
            self.parts[-2:] = [np.sort(np.concatenate(self.parts[-2:]), kind="stable")]


def _keys(ids: Any) -> np.ndarray:
    """64 bits for each name: integers and floats as they are, others by hash (10 million names collide once in 4e5)."""
    types = arrow().types
    if types.is_integer(ids.type):
        return ids.to_numpy().astype(np.int64)
    if types.is_floating(ids.type):
        return ids.to_numpy().astype(np.float64).view(np.int64)
    return np.fromiter((hash(str(name)) for name in ids.to_pylist()), np.int64, len(ids))
