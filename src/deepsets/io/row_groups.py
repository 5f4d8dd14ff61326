"""Tables of any size, local or remote, cut into parts of neighbouring row groups, and read part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .files import File, plain_type
from .reader import MEMBERS, SeenNames, Source, runs, whole_sets
from .storage import TableError, arrow, format_of, list_files, read_footers

PART = 1_000_000  # members
TABLE = 64 << 20  # bytes of rows that are grouped into sets at a time: the more, the fewer states have to be merged
READ = 1 << 16  # rows that are read at a time
ROW_NUMBER = "set"  # name of the sets of tables with one row per set and no column of names


class Part(NamedTuple):
    """Neighbouring row groups of a file."""

    file: str  # path or URI
    groups: tuple[int, int] | None  # the first and the one after the last; None for a file that is not Parquet
    first: int  # number of its first row, over all files
    members: int  # about how many it holds


def group_members(group: Any) -> int:
    """Return about how many members a row group holds; in list columns an empty list counts as one."""
    return max(group.num_rows, *(group.column(i).num_values for i in range(group.num_columns)))


def cut(files: Sequence[str], members: int = PART, count: Callable[[Any], int] = group_members) -> list[Part]:
    """Cut tables into parts of at least `members` members, unless a file ends; a row group is never cut.

    The files are Parquet, or one file of another format. `count` is the number of members of a row group.
    """
    if format_of(files[0]) != "parquet":
        return [Part(files[0], None, 0, 0)]
    out: list[Part] = []
    row = 0
    for file, footer in zip(files, read_footers(files), strict=True):
        start, held, first = 0, 0, row
        for group in range(footer.num_row_groups):
            if held >= members:
                out.append(Part(file, (start, group), first, held))
                start, held, first = group, 0, row
            held += count(footer.row_group(group))
            row += footer.row_group(group).num_rows
        if held:
            out.append(Part(file, (start, footer.num_row_groups), first, held))
    if not out:
        raise TableError(f"{files[0]} has no rows, so there are no sets.")
    return out


def tables(
    file: File,
    part: Part,
    columns: list[str],
    *,
    nested: bool,
    by: str | None,
    whole: bool,
    groups: bool,
    size: int | None = None,
) -> Iterator[Any]:
    """Read a part as tables of 64 MB or `size` bytes: with `groups` of whole row groups, with `whole` of whole sets.

    Where `nested`, a row is a set. Without `by`, a column with the number of the row is added.
    """
    if groups:
        numbers = range(*part.groups or ())
        joined = _joined((file.batches(columns, READ, (number, number + 1)) for number in numbers), size)
    else:
        batches = file.batches(columns, 64 if nested else READ, part.groups)
        cut_anywhere = nested or not whole
        joined = (
            _joined(([batch] for batch in batches), size)
            if cut_anywhere
            else whole_sets(batches, MEMBERS, by or "", by or "", check=False)
        )
    first = part.first
    for table in joined:
        yield table if by else table.add_column(0, ROW_NUMBER, [np.arange(first, first + len(table))])
        first += len(table)


def _joined(pieces: Iterable[Iterable[Any]], size: int | None) -> Iterator[Any]:
    """Tables of at least 64 MB or `size` bytes; a piece is not divided, and a short rest joins the table before it.

    The rest of a part would otherwise bring a state for nearly every one of its rows.
    """
    ready: list[Any] = []
    waiting: list[Any] = []
    for piece in pieces:
        waiting += piece
        if sum(batch.nbytes for batch in waiting) >= (size or TABLE):
            if ready:
                yield arrow().Table.from_batches(ready)
            ready, waiting = waiting, []
    if ready and 2 * sum(batch.nbytes for batch in waiting) >= (size or TABLE):
        yield arrow().Table.from_batches(ready)
        ready = []
    if ready or waiting:
        yield arrow().Table.from_batches(ready + waiting)


def in_order(files: Sequence[str], by: str) -> bool:
    """Return whether the row groups of Parquet files are in the order of the names of their sets.

    Then all but the least and the largest set of neighbouring groups are whole. Only the statistics in the footers
    are read; row groups that are too large to be in memory at once count as not in order.
    """
    last = None
    for footer in read_footers(files):
        place = footer.schema.to_arrow_schema().get_field_index(by)
        for group in filter(lambda group: group.num_rows, map(footer.row_group, range(footer.num_row_groups))):
            found = group.column(place).statistics
            if found is None or not found.has_min_max or not isinstance(found.min, int | str):
                return False
            if group.total_byte_size > 4 * TABLE or (last is not None and found.min < last):
                return False
            last = found.max
    return True


class LargeTable:
    """Table of rows of sets in one or many files, at paths or URIs, checked against a model before any work.

    Attributes: `files`, `columns` (to read), `by` (None: a row is a set, named by its number), `nested` (a row is a
    set), `names` (of the set, the features and z in the tables that are read), `head` (the first rows), `types`.
    """

    def __init__(
        self, model: Any, table: str | Path, by: str | None, features: Sequence[str] | None, z: Sequence[str]
    ) -> None:
        self.model, self.files = model, list_files(table)
        parts = cut(self.files)
        first = parts[0].file
        source = Source(model, [first], by, features=features, z=z)
        self.types, self.by, self.nested = source.types, source.columns.by, source.shape.nested
        self.columns = source.shape.inside(source.columns.all)
        self.names = (self.by or ROW_NUMBER, source.columns.features, source.columns.z)
        self.head = source.open(0).head(self.columns)
        if self.by is None:
            self.head = self.head.add_column(0, ROW_NUMBER, [np.arange(len(self.head))])
        for file, footer in zip(self.files, read_footers(self.files), strict=True) if parts[0].groups else ():
            schema = footer.schema.to_arrow_schema()
            missing = [name for name in self.columns if name not in schema.names]
            if missing:
                raise TableError(f"{file} has no column {missing[0]!r}, which {first} has.")
            kind = plain_type(schema.field(self.by).type) if self.by and footer.num_rows else None
            if kind is not None and kind != self.head.schema.field(self.by).type:
                raise TableError(
                    f"column {self.by!r} holds {kind} in {file} and {self.head.schema.field(self.by).type} in {first}: "
                    "names of sets must be of one type."
                )

    def in_order(self) -> bool:
        """Return whether the row groups are in the order of the names of their sets; see :func:`in_order`."""
        return format_of(self.files[0]) == "parquet" and not self.nested and in_order(self.files, self.by or "")

    def check_whole(self) -> None:
        """Raise a TableError if the rows of a set are not neighbours in one file."""
        if self.by is None or self.nested:
            return
        seen = SeenNames()
        for path in self.files:
            last: Any = None
            for batch in File(path, **self.types).batches([self.by], READ):
                names, _ = runs(batch.column(0))
                names, last = names[int(names[0] == last) :], names[-1]
                again = seen.add(names)
                if again is not None:
                    raise TableError(
                        f"the rows of set {names[again].as_py()!r} are not neighbours in one file: this model needs "
                        f"all members of a set at once. Sort the table by {self.by!r} first."
                    )
