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
from ..io.table_sets import one_per_set, to_sets
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

    def epoch(
        self, epoch: int, *, seed: int, start: int = 0, rank: int = 0, world: int = 1
    ) -> tuple[int, Iterator[Batch | None]]:
        """Steps of an epoch, and its batches of whole sets with about equal numbers of members.

        See :class:`deepsets.train.BatchSource`. A batch is None where this process has no sets left.
        """
        order = np.random.default_rng([seed, epoch]).permutation(len(self.groups))
        batches = self._batches([self.groups[i] for i in order[rank::world]], [seed, epoch, rank])
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
        shape, columns = self.source.shape, self.source.columns
        first, end = group.groups or (0, 0)
        names, by = shape.inside(columns.all), columns.by or ""
        system, path = resolve(group.file)
        with arrow().parquet.ParquetFile(path, filesystem=system) as file:

            def read(number: int, names: list[str]) -> Any:
                return file.read_row_group(number, columns=names, use_threads=False)

            table = read(first, names)
            if not shape.nested and first > 0:  # the rest of a set that began in the group before
                table = table.slice(_run(table[by], read(first - 1, [by])[by][-1]))
            rest = 0
            while not shape.nested and table and end < file.num_row_groups and rest == 0:
                more = read(end, names)
                run = _run(more[by], table[by][-1])
                table, end, rest = arrow().concat_tables([table, more.slice(0, run)]), end + 1, len(more) - run
        if not table:
            return None
        part = self.source.check(to_sets(table, shape, columns))
        y = []
        for column, name in zip(part.targets, columns.target, strict=True):
            y.append(numbers(column if part.per_set else one_per_set(column, name, part.sizes, part.ids), name))
        z = None if part.z is None else torch.from_numpy(part.z).float()
        return Batch(part.X.to(dtype=torch.float32), torch.from_numpy(np.stack(y, axis=1)).float(), z)


def _run(column: Any, name: Any) -> int:
    """Number of values at the beginning that equal `name`."""
    first = arrow().compute.not_equal(column, name).index(True).as_py()
    return len(column) if first < 0 else first


def _join(batches: Sequence[Batch | None]) -> Batch | None:
    some = [batch for batch in batches if batch is not None]
    if len(some) < 2:
        return some[0] if some else None
    sets, y, z = zip(*((batch.sets, batch.y, batch.z) for batch in some), strict=True)
    return Batch(Sets.concat(list(sets)), torch.cat(y), None if z[0] is None else torch.cat(z))
