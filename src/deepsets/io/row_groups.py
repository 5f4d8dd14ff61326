"""Tables of any size, local or remote, cut into parts of neighbouring row groups, and read part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .arrow_types import arrow
from .files import File, format_of
from .storage import is_remote, read_footers, resolve

PART = 1_000_000  # members
TABLE = 32 << 20  # bytes of rows that are grouped into sets at a time: the more, the fewer states have to be merged
READ = 1 << 16  # rows that are read at a time
ROW_NUMBER = "set"  # name of the sets of tables with one row per set and no column of names


class Part(NamedTuple):
    """Neighbouring row groups of a file.

    Parameters
    ----------
    file : str
        Path or URI.
    groups : tuple of (int, int) or None
        First row group and the one after the last; None for the whole of a file that is not Parquet.
    first : int
        Number of its first row, over all files.
    members : int
        About how many members it holds.
    span : tuple or None
        Least and largest name of a set in a sorted table; names between them occur in no other part.
    """

    file: str
    groups: tuple[int, int] | None
    first: int
    members: int
    span: tuple[Any, Any] | None = None


def group_members(group: Any) -> int:
    """Return about how many members a row group holds.

    Parameters
    ----------
    group : pyarrow.parquet.RowGroupMetaData
        Its metadata. In list columns an empty list counts as one member.
    """
    return max(group.num_rows, *(group.column(i).num_values for i in range(group.num_columns)))


def cut(files: Sequence[str], members: int = PART, count: Callable[[Any], int] = group_members) -> list[Part]:
    """Cut tables into parts, in the order of the files.

    Parameters
    ----------
    files : sequence of str
        Paths or URIs of Parquet files, or one file of another format.
    members : int
        Least number of members of a part, unless its file ends; a row group is never cut.
    count : callable
        Number of members of a row group, from its metadata.
    """
    if format_of(Path(files[0])) != "parquet":
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
        raise ValueError(f"{files[0]} has no rows, so there are no sets.")
    return out


def batches(part: Part, columns: list[str] | None = None, rows: int = READ, file: File | None = None) -> Iterator[Any]:
    """Read a part as record batches.

    Parameters
    ----------
    part : Part
        What to read.
    columns : list of str or None
        Columns of the file; None: all.
    rows : int
        Largest number of rows of a batch.
    file : File, optional
        The open file, if it is not Parquet.
    """
    if part.groups is None:
        file = file or File(part.file)
        yield from file.batches(columns or file.schema.names, rows)
        return
    system, path = resolve(part.file)
    options = {"pre_buffer": is_remote(part.file), "buffer_size": 1 << 20}
    try:
        with arrow().parquet.ParquetFile(path, filesystem=system, **options) as opened:
            yield from opened.iter_batches(rows, row_groups=range(*part.groups), columns=columns)
    except (arrow().ArrowException, OSError) as error:
        raise ValueError(f"{part.file} cannot be read: {str(error).splitlines()[0].rstrip('.')}.") from None


def tables(
    part: Part, columns: list[str], *, nested: bool, by: str | None, whole: bool = False, file: File | None = None
) -> Iterator[Any]:
    """Read a part as tables of about 32 MB.

    Parameters
    ----------
    part, columns, file
        As for :func:`batches`.
    nested : bool
        Whether a row is a set.
    by : str or None
        Column that names the set; None adds a column with the number of the row.
    whole : bool, default=False
        Whether no set may be cut, in a part with all rows of its sets, as neighbours.
    """
    waiting: list[Any] = []
    first = part.first
    for batch in batches(part, columns, 64 if nested else READ, file):
        waiting.append(batch)
        if sum(each.nbytes for each in waiting) < TABLE:
            continue
        table, rest = arrow().Table.from_batches(waiting), 0
        if whole and not nested:  # rows of the last set may follow
            same = arrow().compute.equal(table[by], table[by][-1]).to_numpy()
            rest = len(same) if same.all() else int(np.argmin(same[::-1]))
        if len(table) > rest:
            yield _named(table.slice(0, len(table) - rest), by, first)
        first, waiting = first + len(table) - rest, table.slice(len(table) - rest).to_batches()
    if sum(map(len, waiting)):
        yield _named(arrow().Table.from_batches(waiting), by, first)


def _named(table: Any, by: str | None, first: int) -> Any:
    return table if by else table.add_column(0, ROW_NUMBER, [np.arange(first, first + len(table))])


def with_spans(parts: list[Part], by: str) -> list[Part]:
    """Return the parts of a sorted table with the names of their first and last sets; other parts as they are.

    Parameters
    ----------
    parts : list of Part
        All parts of the table, in order. Only the statistics in the footers of Parquet files are read.
    by : str
        Column that names the set.
    """
    names = list(dict.fromkeys(part.file for part in parts))
    footers = dict(zip(names, read_footers(names), strict=True)) if parts[0].groups else {}
    out: list[Part] = []
    for part in parts:
        if part.groups is None:
            return parts
        footer = footers[part.file]
        place = next(i for i in range(footer.num_columns) if footer.schema.column(i).path == by)
        found = [footer.row_group(group).column(place).statistics for group in range(*part.groups)]
        if not all(s is not None and s.has_min_max and isinstance(s.min, int | str) for s in found):
            return parts
        span = (min(s.min for s in found), max(s.max for s in found))
        if out and out[-1].span is not None and out[-1].span[1] > span[0]:
            return parts
        out.append(part._replace(span=span))
    return out


def is_sorted(part: Part, by: str) -> bool:
    """Return whether the names of the sets of a part never decrease, reading that column only.

    Parameters
    ----------
    part : Part
        Row groups of a Parquet file.
    by : str
        Column that names the set.
    """
    compute, last = arrow().compute, None
    for batch in batches(part, [by]):
        names = batch.column(0) if last is None else arrow().concat_arrays([last, batch.column(0)])
        if names.null_count or compute.all(compute.less_equal(names[:-1], names[1:])).as_py() is False:
            return False
        last = names[-1:]
    return True
