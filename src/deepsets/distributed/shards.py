"""Labelled sets in Parquet files, as a source of batches for training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..io.files import numbers
from ..io.reader import Source
from ..io.row_groups import Part, cut
from ..io.storage import arrow, file_stamps, list_files, resolve
from ..io.table_sets import TableSets, same_within_sets, to_sets
from ..sets import Sets
from ..train import Batch


class Shards:
    """Labelled sets in Parquet files, larger than memory: a source of batches for `deepsets.train.train`.

    The unit is the row group. Each process reads its own ones, other ones in every epoch. A set belongs to the group
    in which it begins, and is read to its end: no set is divided. A training that is resumed within an epoch reads
    that epoch again up to its step, without computing.

    Parameters
    ----------
    table : str or Path
        Path or URI of a file, or of a folder of files. Either a row is a member and `by` names its set, whose rows
        are contiguous in one file; or a row is a set, with its members in list columns.
    by : str, optional
        Column with the name of the set.
    target : sequence of str
        Columns with one number per set.
    features, z : sequence of str, optional
        Columns of the members and of the context; by default all remaining columns are features.
    batch_members : int, default=16_000
        Members per batch on average, over all processes.
    mix : int, default=4
        Number of row groups that are in memory, and shuffled together, at a time.

    Examples
    --------
    >>> shards = Shards("table/", by="basket", target=["spend"])  # doctest: +SKIP
    >>> train(model, loss, shards, epochs=10)  # doctest: +SKIP
    """

    def __init__(
        self,
        table: str | Path,
        *,
        by: str | None = None,
        target: Sequence[str],
        features: Sequence[str] | None = None,
        z: Sequence[str] = (),
        batch_members: int = 16_000,
        mix: int = 4,
    ) -> None:
        if batch_members < 1 or mix < 1:
            raise ValueError(f"batch_members and mix must be 1 or more; found {batch_members} and {mix}.")
        self.files, self.mix = list_files(table), mix
        self.groups = cut(self.files, 1)
        self.source = Source(None, self.files[:1], by, features=features, z=z, target=target)
        self.steps = max(1, round(sum(group.members for group in self.groups) / batch_members))

    @property
    def settings(self) -> dict[str, Any]:
        """What identifies the data: files with sizes and times, columns, steps per epoch."""
        columns = list(self.source.columns.all)
        return {"tables": file_stamps(self.files), "columns": columns, "mix": self.mix, "steps": self.steps}

    def row_groups(self, epoch: int, *, seed: int, rank: int, world: int) -> list[Part]:
        """Row groups of a process in an epoch: shuffled, largest first to the process with the fewest members."""
        order = np.random.default_rng([seed, epoch]).permutation(len(self.groups))
        shuffled = [self.groups[i] for i in order]
        load, mine = np.zeros(world), []
        for i in sorted(range(len(shuffled)), key=lambda i: -shuffled[i].members):
            least = int(load.argmin())
            load[least] += shuffled[i].members
            if least == rank:
                mine.append(i)
        return [shuffled[i] for i in sorted(mine)]

    def epoch(
        self, epoch: int, *, seed: int, start: int = 0, rank: int = 0, world: int = 1
    ) -> tuple[int, Iterator[Batch | None]]:
        """Steps of an epoch, and its batches of whole sets with about equal numbers of members.

        See :class:`deepsets.train.BatchSource`. A batch is None where this process has no sets left.
        """
        batches = self._batches(self.row_groups(epoch, seed=seed, rank=rank, world=world), [seed, epoch, rank])
        for _ in range(start):
            next(batches)
        return self.steps, batches

    def _batches(self, groups: list[Part], seed: list[int]) -> Iterator[Batch | None]:
        total = max(1, sum(group.members for group in groups))
        given, held = 0, 0
        waiting: list[Batch] = []
        for start in range(0, len(groups), self.mix):
            data = _join([self._read(group) for group in groups[start : start + self.mix]])
            if data is None:
                continue
            order = np.random.default_rng([*seed, start]).permutation(len(data.sets))
            # A set goes to the step in whose share of all members its middle lies.
            sizes = data.sets.sizes.numpy()[order] + 1e-9
            middle = held + np.cumsum(sizes) - sizes / 2
            held += int(sizes.sum())
            step = np.minimum((middle / total * self.steps).astype(int), self.steps - 1)
            for number in np.unique(step):
                while given < number:
                    yield _join(waiting)
                    waiting, given = [], given + 1
                waiting.append(data.take(order[step == number]))
        while given < self.steps:
            yield _join(waiting)
            waiting, given = [], given + 1

    def _read(self, group: Part) -> Batch | None:
        """The sets that begin in a row group, complete."""
        source = self.source
        names = source.shape.inside(source.columns.all)
        assert group.groups is not None
        system, path = resolve(group.file)
        with arrow().parquet.ParquetFile(path, filesystem=system) as file:
            first, end = group.groups
            table = file.read_row_groups(range(first, end), columns=names, use_threads=False)
            if not source.shape.nested:
                table = _whole_sets(file, table, first, end, source.columns.by or "", names)
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
                    raise ValueError(
                        f"the target {name!r} changes within set {part.ids[bad].as_py()!r}: it needs one value per set."
                    )
                found = column.take(arrow().array(np.cumsum(part.sizes) - part.sizes))
            y.append(numbers(found, name))
        z = None if part.z is None else torch.from_numpy(part.z).float()
        return Batch(part.X.to(dtype=torch.float32), torch.from_numpy(np.stack(y, axis=1)).float(), z)


def _whole_sets(file: Any, table: Any, first: int, end: int, by: str, names: list[str]) -> Any:
    """Drop the rest of a set that began in the group before, and add the rest of the last set."""
    if first > 0:
        before = file.read_row_group(first - 1, columns=[by], use_threads=False)[by]
        if len(before):
            table = table.slice(_run(table[by], before[-1]))
    for number in range(end, file.num_row_groups if table.num_rows else 0):
        more = file.read_row_group(number, columns=names, use_threads=False)
        rest = _run(more[by], table[by][-1])
        table = arrow().concat_tables([table, more.slice(0, rest)])
        if rest < more.num_rows:
            break
    return table


def _run(column: Any, name: Any) -> int:
    """Number of values at the beginning that equal `name`."""
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
