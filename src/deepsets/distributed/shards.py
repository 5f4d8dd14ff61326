"""Sets in Parquet files for training: which process reads what, and its batches, one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ..io import TableSets, numbers, same_within_sets, to_sets
from ..io.files import arrow
from ..io.source import Source, table_files
from ..sets import Sets
from ..train import Batch
from .partition import group_members
from .storage import stamps


class Group(NamedTuple):
    """A row group: its file, its number there, and about how many members it has."""

    file: int
    number: int
    members: int


class Shards:
    """Labelled sets in Parquet files, larger than memory.

    table:  a file, or a folder of files. A row is a member and `by` names its set, whose rows are neighbours in one
            file; or a row is a set, with its members in list columns.
    target: columns with one number for each set. features, z: columns; by default all others are features.
    mix:    how many row groups are in memory, and shuffled together, at a time.

    The unit is the row group: each process reads its own, other ones in every epoch. A set belongs to the group in
    which it begins, and is read to its end: no set is ever cut.
    """

    def __init__(
        self,
        table: str | Path,
        *,
        by: str | None = None,
        target: Sequence[str],
        features: Sequence[str] | None = None,
        z: Sequence[str] = (),
        mix: int = 4,
    ) -> None:
        self.source = Source(None, table_files(table), by, features=features, z=z, target=target)
        self.mix = mix
        self.groups: list[Group] = []
        for file, path in enumerate(self.source.files):
            about = arrow().parquet.read_metadata(path)
            for number in range(about.num_row_groups):
                if about.row_group(number).num_rows:
                    self.groups.append(Group(file, number, group_members(about.row_group(number))))
        if not self.groups:
            raise ValueError(f"{self.source.files[0]} has no rows, so there are no sets.")

    @property
    def materialize(self) -> int:
        """About how many members there are in all."""
        return sum(group.members for group in self.groups)

    @property
    def identity(self) -> dict[str, Any]:
        """What a training must share with the one it takes up."""
        return {"tables": [list(s) for s in stamps(self.source.files)], "columns": list(self.source.columns.all)} | {
            "mix": self.mix
        }

    def own(self, seed: int, epoch: int, rank: int, world: int) -> list[Group]:
        """The row groups of a process in an epoch: shuffled, largest first to the one with the fewest members."""
        order = np.random.default_rng([seed, epoch]).permutation(len(self.groups))
        shuffled = [self.groups[i] for i in order]
        load, mine = np.zeros(world), []
        place = sorted(range(len(shuffled)), key=lambda i: -shuffled[i].members)
        for i in place:
            least = int(load.argmin())
            load[least] += shuffled[i].members
            if least == rank:
                mine.append(i)
        return [shuffled[i] for i in sorted(mine)]

    def batches(self, steps: int, seed: int, epoch: int, rank: int = 0, world: int = 1) -> Iterator[Batch | None]:
        """Exactly `steps` batches of whole sets with about equally many members; None where there is nothing left."""
        groups = self.own(seed, epoch, rank, world)
        total = max(1, sum(group.members for group in groups))
        given, held = 0, 0
        waiting: list[Batch] = []
        for start in range(0, len(groups), self.mix):
            data = _join([self._read(group) for group in groups[start : start + self.mix]])
            if data is None:
                continue
            order = np.random.default_rng([seed, epoch, rank, start]).permutation(len(data.sets))
            # A set goes to the step in whose share of all members its middle lies.
            sizes = data.sets.sizes.numpy()[order] + 1e-9
            middle = held + np.cumsum(sizes) - sizes / 2
            held += int(sizes.sum())
            step = np.minimum((middle / total * steps).astype(int), steps - 1)
            for number in np.unique(step):
                while given < number:
                    yield _join(waiting)
                    waiting, given = [], given + 1
                waiting.append(data.take(order[step == number]))
        while given < steps:
            yield _join(waiting)
            waiting, given = [], given + 1

    def _read(self, group: Group) -> Batch | None:
        """The sets that begin in a row group, whole."""
        source = self.source
        names = source.shape.inside(source.columns.all)
        with arrow().parquet.ParquetFile(source.files[group.file]) as file:
            table = file.read_row_group(group.number, columns=names, use_threads=False)
            if not source.shape.nested:
                table = _whole_sets(file, table, group.number, source.columns.by or "", names)
        if table.num_rows == 0:
            return None
        return self._batch(source.check(to_sets(table, source.shape, source.columns)))

    def _batch(self, part: TableSets) -> Batch:
        assert isinstance(part.X, Sets)
        y = []
        for column, name in zip(part.targets, self.source.columns.target, strict=True):
            found = column
            if not part.per_set:
                bad = same_within_sets(column, part.sizes)
                if bad is not None:
                    raise ValueError(f"the target {name!r} changes within set {part.ids[bad].as_py()!r}.")
                found = column.take(arrow().array(np.cumsum(part.sizes) - part.sizes))
            y.append(numbers(found, name))
        z = None if part.z is None else torch.from_numpy(part.z).float()
        return Batch(part.X, torch.from_numpy(np.stack(y, axis=1)).float(), z)


def _whole_sets(file: Any, table: Any, number: int, by: str, names: list[str]) -> Any:
    """Without the rest of a set that began in the group before, and with the rest of the last one."""
    if number > 0:
        before = file.read_row_group(number - 1, columns=[by], use_threads=False)[by]
        if len(before):
            table = table.slice(_run(table[by], before[-1]))
    while table.num_rows and number + 1 < file.num_row_groups:
        number += 1
        more = file.read_row_group(number, columns=names, use_threads=False)
        rest = _run(more[by], table[by][-1])
        table = arrow().concat_tables([table, more.slice(0, rest)])
        if rest < more.num_rows:
            break
    return table


def _run(column: Any, name: Any) -> int:
    """How many values at the beginning are this one."""
    differ = arrow().compute.not_equal(column, name)
    first = differ.index(True).as_py()
    return len(column) if first < 0 else first


def _join(batches: Sequence[Batch | None]) -> Batch | None:
    some = [batch for batch in batches if batch is not None]
    if len(some) < 2:
        return some[0] if some else None
    y, z = ([batch[i] for batch in some] for i in (1, 2))
    return Batch(
        Sets.concat([batch.sets for batch in some]),
        torch.cat(y),  # type: ignore[arg-type]
        None if z[0] is None else torch.cat(z),  # type: ignore[arg-type]
    )
