"""Sets that are whole in one batch of one part: answered at once, their states neither written nor merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..io.files import arrow, format_of
from ..io.source import Source
from .partition import Own, Part
from .state_codec import Coder
from .states import MEMBERS, States


class Unsorted(Exception):
    """The names of a part come in no order: a set may come again."""


class Direct:
    r"""Answers the sets of sorted batches, but for the first and the last of each: those may go on in the next.

    own: names between these two stand in no other part. path: the file for the answers, with the number of members.

    The state of a small set is larger than its rows (4 kB for max, mean, min and deviation of 128 channels), and to
    write, read and sort it costs more than phi. Sorted tables of small sets are the usual ones.
    """

    def __init__(self, coder: Coder, by: str, own: Own, path: Path) -> None:
        self.coder, self.by, self.own, self.path = coder, by, own, path
        self.rows = 0
        self._last: Any = None
        self._sink: Any = None

    def check(self, ids: Any) -> None:
        """The names of the next batch must go on where those of the last one ended."""
        compute = arrow().compute
        rising = compute.less(ids[:-1], ids[1:])
        if ids.null_count or compute.all(rising).as_py() is False:
            raise Unsorted
        if self._last is not None and compute.less(ids[0], self._last).as_py():
            raise Unsorted
        self._last = ids[-1]

    def rest(self, states: States) -> States:
        """Writes the answers of sets that are whole, and gives the states of the others."""
        compute, ids, (low, high) = arrow().compute, states.ids, self.own
        start = 0 if low is None else compute.sum(compute.less_equal(ids, arrow().scalar(low, ids.type))).as_py()
        stop = len(ids) if high is None else compute.sum(compute.less(ids, arrow().scalar(high, ids.type))).as_py()
        start, stop = max(start, 1), min(stop, len(ids) - 1)
        if stop <= start:
            return states
        self._write(states.slice(start, stop))
        return states.take(np.r_[:start, stop : len(ids)])

    def _write(self, states: States) -> None:
        answers = self.coder.decode(states.parts, states.z)
        table = arrow().table({self.by: states.ids, **answers, MEMBERS: states.members})
        self._sink = self._sink or arrow().ipc.new_file(self.path, table.schema)
        self._sink.write_table(table)
        self.rows += len(table)

    def close(self) -> None:
        """The file is whole."""
        if self._sink is not None:
            self._sink.close()


def with_own_names(parts: list[Part], source: Source) -> list[Part]:
    """The parts with the names that only they can hold, from the heads of the files; nothing where these do not say.

    Of parts with names 1..5, 5..9 and 9..12 the first owns what is below 5, the second what lies between 5 and 9.
    """
    by = source.columns.by
    if by is None or len(parts) == 1:  # sets without names are rows; and where there is no other part, all is here
        return [part._replace(own=(None, None)) for part in parts]
    spans = _spans(parts, source.files, source.shape.places[by][0])
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


def _spans(parts: list[Part], files: list[Path], by: str) -> list[tuple[Any, Any]] | None:
    """The least and the largest name of each part."""
    assert format_of(files[0]) == "parquet"
    out: list[tuple[Any, Any]] = []
    about, number = None, -1
    for part in parts:
        if about is None or part.file != number:
            about, number = arrow().parquet.read_metadata(files[part.file]), part.file
        place = next(i for i in range(about.num_columns) if about.schema.column(i).path == by)
        assert part.groups is not None
        heads = [about.row_group(group).column(place).statistics for group in range(*part.groups)]
        if not all(head is not None and head.has_min_max and isinstance(head.min, int | str) for head in heads):
            return None
        out.append((min(head.min for head in heads), max(head.max for head in heads)))
    return out
