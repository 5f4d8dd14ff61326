"""Tables cut into parts, and a part read in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from ..io import File, TableSets, to_sets
from ..io.files import arrow, format_of
from ..io.source import Source
from ..sets import Sets

PART = 1_000_000  # members: the most that is done again after a crash
FEW = 200_000  # members: a second or two of work
SORTED = 32 << 20  # bytes of rows that are sorted into sets at a time: the more, the fewer states have to be merged
BATCH = 8_000  # members that go through phi at a time: 8 MB for 128 numbers in float64, which stays near the cache

Own = tuple[Any, Any]  # names between these two; None: no bound on this side


class Part(NamedTuple):
    """Neighbouring row groups of a file; groups is None for the whole of a file of another kind.

    first: its row 0. members: about how many there are. own: names that no other part holds; None where nobody knows.
    """

    number: int
    file: int
    groups: tuple[int, int] | None
    first: int
    members: int
    own: Own | None = None


class Files(Protocol):
    """Tables with the same columns."""

    files: list[Path]

    def open(self, number: int) -> File:
        """A file by its number."""


def cut(source: Source, members: int = PART) -> list[Part]:
    """Parts of about `members` members, at least one row group each, in the order of the files."""
    for number in range(len(source.files)):
        _check_names(source, source.open(number))
    out = cut_files(source.files, members)
    if not out:
        raise ValueError(f"{source.files[0]} has no rows, so there are no sets.")
    return out


def are_few(parts: list[Part]) -> bool:
    """Whether this process has done them before others would have started."""
    return sum(part.members for part in parts) < FEW


def cut_files(files: list[Path], members: int = PART) -> list[Part]:
    """The same for any tables."""
    if format_of(files[0]) != "parquet":  # a folder is of Parquet files, so this is the only one
        return [Part(0, 0, None, 0, 0)]
    out: list[Part] = []
    row = 0
    for number, path in enumerate(files):
        start, held, first = 0, 0, row
        about = arrow().parquet.read_metadata(path)
        for group in range(about.num_row_groups):
            if held >= members:
                out.append(Part(len(out), number, (start, group), first, held))
                start, held, first = group, 0, row
            held += group_members(about.row_group(group))
            row += about.row_group(group).num_rows
        if held:
            out.append(Part(len(out), number, (start, about.num_row_groups), first, held))
    return out


def _check_names(source: Source, file: File) -> None:
    """All files have the columns of the first, and name their sets by values of one type."""
    wanted = source.shape.inside(source.columns.all)
    missing = [name for name in wanted if name not in file.schema.names]
    if missing:
        raise ValueError(f"{file.path} has no column {missing[0]!r}, which {source.files[0]} has.")
    if source.columns.by is not None:
        here, there = (opened.schema.field(source.columns.by).type for opened in (file, source.open(0)))
        if here != there:
            raise ValueError(
                f"the column {source.columns.by!r} holds {here} in {file.path} and {there} in {source.files[0]}: "
                "the names of sets must be of one type."
            )


def group_members(group: Any) -> int:
    """About how many members a row group holds, from its head: in list columns an empty list counts as one."""
    return max(group.num_rows, *(group.column(i).num_values for i in range(group.num_columns)))


def record_batches(source: Files, part: Part, names: list[str], rows: int) -> Iterator[Any]:
    """Record batches of a part."""
    file = source.open(part.file)
    if part.groups is None:
        yield from file.batches(names, rows)
        return
    with file._telling(), arrow().parquet.ParquetFile(file.path, pre_buffer=False, buffer_size=1 << 20) as reader:
        yield from reader.iter_batches(rows, row_groups=range(*part.groups), columns=names)


def batches(source: Source, part: Part, members: int = BATCH, size: int = SORTED) -> Iterator[TableSets]:
    """The sets, or pieces of sets, of a part, checked, about `members` at a time; a set may come again and again."""
    if source.shape.nested or source.tokens:
        yield from _grouped(source, part, members)
        return
    for sets in _grouped(source, part, max(members, size // (4 * len(source.columns.features)))):
        yield from _pieces(sets, members)


def _grouped(source: Source, part: Part, members: int) -> Iterator[TableSets]:
    names = source.shape.inside(source.columns.all)
    inside = source.shape.inside(source.columns.features[:1])[0]
    waiting: list[Any] = []
    held, first = 0, part.first
    for batch in record_batches(source, part, names, 64 if source.shape.nested else members):
        waiting.append(batch)
        held += len(batch[inside].flatten()) if source.shape.nested else len(batch)
        if held >= members:
            yield _sets(waiting, source, first)
            first += sum(map(len, waiting))
            waiting, held = [], 0
    if sum(map(len, waiting)):
        yield _sets(waiting, source, first)


def _pieces(sets: TableSets, members: int) -> Iterator[TableSets]:
    """Sets without empty ones, cut after every `members` members; one that is cut has rows in both pieces."""
    assert isinstance(sets.X, Sets)
    ends = np.cumsum(sets.sizes)
    for start in range(0, len(sets.X.values), members):
        stop = min(start + members, int(ends[-1]))
        which = slice(np.searchsorted(ends, start, side="right"), np.searchsorted(ends, stop) + 1)
        offsets = np.concatenate([[start], ends[which].clip(max=stop)]) - start
        here = Sets.unchecked(sets.X.values[start:stop], torch.from_numpy(offsets))
        z = None if sets.z is None else sets.z[which]
        yield TableSets(here, np.diff(offsets), sets.ids[which], z, [], sets.per_set)


def _sets(waiting: list[Any], source: Source, first: int) -> TableSets:
    return source.check(to_sets(arrow().Table.from_batches(waiting), source.shape, source.columns, first))
