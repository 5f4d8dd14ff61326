"""Tables cut into parts of neighbouring row groups, and a part read in tables of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..io.files import File, arrow, format_of
from .storage import footers, is_remote, resolve

PART = 1_000_000  # members: the most that is done again after a crash
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
    own : tuple or None
        Names strictly between these two (None: no bound) occur in no other part; None where that is not known.
    """

    file: str
    groups: tuple[int, int] | None
    first: int
    members: int
    own: tuple[Any, Any] | None = None


def cut(files: Sequence[str], members: int = PART, count: Any = None) -> list[Part]:
    """Cut tables into parts, in the order of the files.

    Parameters
    ----------
    files : sequence of str
        Parquet files, or one file of another format.
    members : int
        Least number of members of a part, unless its file ends; a row group is never cut.
    count : callable, optional
        Number of members of a row group, from its metadata; by default :func:`group_members`.
    """
    if format_of(Path(files[0])) != "parquet":
        return [Part(str(files[0]), None, 0, 0)]
    out: list[Part] = []
    row = 0
    for file, footer in zip(files, footers(list(files)), strict=True):
        start, held, first = 0, 0, row
        for group in range(footer.num_row_groups):
            if held >= members:
                out.append(Part(file, (start, group), first, held))
                start, held, first = group, 0, row
            held += (count or group_members)(footer.row_group(group))
            row += footer.row_group(group).num_rows
        if held:
            out.append(Part(file, (start, footer.num_row_groups), first, held))
    if not out:
        raise ValueError(f"{files[0]} has no rows, so there are no sets.")
    return out


def group_members(group: Any) -> int:
    """Return about how many members a row group holds, from its metadata.

    Parameters
    ----------
    group : pyarrow.parquet.RowGroupMetaData
        In list columns an empty list counts as one.
    """
    return max(group.num_rows, *(group.column(i).num_values for i in range(group.num_columns)))


def batches(part: Part, columns: list[str] | None, rows: int, numbers: list[str] | None = None) -> Iterator[Any]:
    """Read a part as record batches.

    Parameters
    ----------
    part : Part
        What to read.
    columns : list of str or None
        Columns of the file; None: all.
    rows : int
        Largest number of rows of a batch.
    numbers : list of str, optional
        Columns of text files that hold numbers.
    """
    if part.groups is None:
        file = File(part.file, numbers or [])
        yield from file.batches(columns or file.schema.names, rows)
        return
    system, path = resolve(part.file)
    try:
        options = {"pre_buffer": is_remote(part.file), "buffer_size": 1 << 20}
        with arrow().parquet.ParquetFile(path, filesystem=system, **options) as file:
            yield from file.iter_batches(rows, row_groups=range(*part.groups), columns=columns)
    except (arrow().ArrowException, OSError) as error:
        raise ValueError(f"{part.file} cannot be read: {str(error).splitlines()[0].rstrip('.')}.") from None


def tables(part: Part, columns: list[str], *, nested: bool, by: str | None, numbers: Any = None) -> Iterator[Any]:
    """Read a part as tables of about `TABLE` bytes.

    Parameters
    ----------
    part, columns
        As for :func:`batches`.
    nested : bool
        Whether a row is a set.
    by : str or None
        Column that names the set; None adds a column with the number of the row.
    numbers : list of str, optional
        Columns of text files that hold numbers.
    """
    waiting: list[Any] = []
    first = part.first
    for batch in batches(part, columns, 64 if nested else READ, numbers):
        waiting.append(batch)
        if sum(each.nbytes for each in waiting) >= TABLE:
            yield _named(waiting, by, first)
            first, waiting = first + sum(map(len, waiting)), []
    if sum(map(len, waiting)):
        yield _named(waiting, by, first)


def _named(waiting: list[Any], by: str | None, first: int) -> Any:
    table = arrow().Table.from_batches(waiting)
    return table if by else table.add_column(0, ROW_NUMBER, [np.arange(first, first + len(table))])


def with_own_names(parts: list[Part], by: str) -> list[Part]:
    """Return the parts with the names that only they can hold, from the statistics in the footers of Parquet files.

    Of parts with names 1..5, 5..9 and 9..12 the first owns what is below 5, the second what lies between 5 and 9.

    Parameters
    ----------
    parts : list of Part
        All parts.
    by : str
        Column that names the set.
    """
    if len(parts) == 1:
        return [parts[0]._replace(own=(None, None))]
    spans = _spans(parts, by)
    if spans is None:
        return parts
    out = list(parts)
    order = sorted(range(len(parts)), key=lambda i: spans[i])
    below = None
    for place, i in enumerate(order):
        above = spans[order[place + 1]][0] if place + 1 < len(order) else None
        least, largest = spans[i]
        if (below is None or below < largest) and (above is None or least < above):
            out[i] = parts[i]._replace(own=(below, above))
        below = largest if below is None else max(below, largest)
    return out


def _spans(parts: list[Part], by: str) -> list[tuple[Any, Any]] | None:
    """The least and the largest name of each part."""
    names = list(dict.fromkeys(part.file for part in parts))
    known = dict(zip(names, footers(names), strict=True))
    out: list[tuple[Any, Any]] = []
    for part in parts:
        footer = known[part.file]
        place = next(i for i in range(footer.num_columns) if footer.schema.column(i).path == by)
        assert part.groups is not None
        found = [footer.row_group(group).column(place).statistics for group in range(*part.groups)]
        if not all(s is not None and s.has_min_max and isinstance(s.min, int | str) for s in found):
            return None
        out.append((min(s.min for s in found), max(s.max for s in found)))
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
    for batch in batches(part, [by], 1 << 17):
        names = batch.column(0)
        if len(names) and last is not None and not compute.less_equal(last, names[0]).as_py():
            return False
        if names.null_count or compute.all(compute.less_equal(names[:-1], names[1:])).as_py() is False:
            return False
        last = names[-1] if len(names) else last
    return True
