"""Engine for one machine: worker processes over row groups, states partitioned on disk by the hash of their set.

First each part of the tables is encoded to states, which are written as Arrow files sorted by the hash of the set; then
each range of hashes is read from all these files, merged and decoded. Every finished step is a folder with the sizes
and checksums of its files, so that an interrupted run can be resumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..files import atomic_folder, locked
from ..io import arrow
from ..io.row_groups import Part, is_sorted, tables
from ..io.storage import parquet_writer, publish
from .jobs import Input, Job
from .processes import map_in_processes
from .resume import Work, finish, finished
from .states import MEMBERS, hashes

STATES = 64 << 20  # bytes of states that are held, and merged, at a time
FEW = 200_000  # members, a second or two of work: this process is done before others would have started
_HASH = "__hash__"


class Local:
    """Engine for one machine."""

    def __init__(self, workers: int | None = None, address: None = None) -> None:
        self.workers = workers

    def run(self, job: Job) -> dict[str, Any]:
        """Run a job, resuming what an interrupted run of the same job has finished."""
        steps = [(input, part) for input in job.inputs for part in input.parts]
        plain = job._replace(progress=None)  # for the workers
        with Work(job) as folder, locked(folder):
            maps = [folder / f"map-{number:06d}" for number in range(len(steps))]
            todo = [number for number, step in enumerate(maps) if finished(step) is None]
            for number in self._map(_Map(plain, steps, maps), todo, sum(part.members for _, part in steps) < FEW):
                if job.progress is not None:
                    job.progress(steps[number][1].members)
            facts = [finished(step, verify=False) or {} for step in maps]
            outs = [step / "out.parquet" for step, fact in zip(maps, facts, strict=True) if fact["sets"]]
            spills = [file for step in maps for file in sorted(step.glob("*.arrow"))]
            count = -(-sum(file.stat().st_size for file in spills) // STATES)
            reduces = [folder / f"reduce-{count}-{number:06d}" for number in range(count)]
            left = [number for number, step in enumerate(reduces) if finished(step) is None]
            for _ in self._map(_Reduce(plain, spills, reduces), left, len(left) <= 4):
                pass
            outs += [step / "out.parquet" for step in reduces]
            sort = job.result.names[0] if job.reduce else None
            publish([str(out) for out in outs], job.output, job.manifest, sort)
            facts += [finished(step, verify=False) or {} for step in reduces]
        counts = {name: sum(fact.get(name, 0) for fact in facts) for name in ("sets", "members")}
        return {**counts, "parts": len(steps), "resumed": len(steps) - len(todo)}

    def collect(self, input: Input, progress: Any = None) -> Any:
        """Return the results of an input's function for all its parts, as one table."""
        found = []
        for table in self._map(_Collect(input), input.parts, sum(part.members for part in input.parts) < FEW):
            found.append(table)
            if progress is not None:
                progress(input.parts[len(found) - 1].members)
        return arrow().concat_tables(found)

    def _map(self, function: Any, items: Sequence[Any], few: bool) -> Iterator[Any]:
        if few and self.workers is None:
            return map(function, items)
        return map_in_processes(function, items, self.workers)


class _Map:
    """Encodes a part. Sets that are known to be whole are predicted directly, others are written as states."""

    def __init__(self, job: Job, steps: list[tuple[Input, Part]], folders: list[Path]) -> None:
        self.job, self.steps, self.folders = job, steps, folders

    def __call__(self, number: int) -> int:
        folder, (input, part) = self.folders[number], self.steps[number]
        if finished(folder) is not None:  # by a worker that died before it could report it
            return number
        with atomic_folder(folder) as new:
            results, members = _Results(new / "out.parquet", self.job), 0
            if self.job.reduce is None:
                for table in input.results(part):
                    results.write(table)
                members = part.members
            else:
                spill = _Spill(new, input.merge)
                direct = input.direct is not None and part.span is not None and is_sorted(part, input.by or "")
                for table in tables(part, input.columns, nested=input.nested, by=input.by):
                    whole, rest = _split_whole(table, input.by or "", part.span) if direct else (table[:0], table)
                    if len(whole):
                        results.write(input.direct(whole))
                    if len(rest):
                        spill.add(input.function(rest))
                    members += len(whole)
                spill.write()
                members += spill.members
            results.close()
            finish(new, members=members, sets=results.sets)
        return number


class _Reduce:
    """Merges the states of a range of hashes, and writes the results."""

    def __init__(self, job: Job, spills: list[Path], folders: list[Path]) -> None:
        self.job, self.spills, self.folders = job, spills, folders

    def __call__(self, number: int) -> int:
        if finished(self.folders[number]) is not None:
            return number
        edges = [(each << 32) // len(self.folders) for each in (number, number + 1)]
        found = []
        for file in self.spills:
            table = arrow().ipc.open_file(arrow().memory_map(str(file))).read_all()
            start, stop = np.searchsorted(table[_HASH].to_numpy(), edges)
            found.append(table.slice(start, stop - start).drop_columns(_HASH))
        states = arrow().concat_tables(found)
        with atomic_folder(self.folders[number]) as new:
            results = _Results(new / "out.parquet", self.job)
            results.write(self.job.reduce(states) if len(states) else self.job.result.empty_table())
            results.close()
            finish(new, sets=results.sets)
        return number


class _Collect:
    def __init__(self, input: Input) -> None:
        self.input = input

    def __call__(self, part: Part) -> Any:
        return arrow().concat_tables(self.input.results(part))


class _Spill:
    """States of a part: merged while they are few, written as a file sorted by hash where they are many."""

    def __init__(self, folder: Path, merge: Any) -> None:
        self.folder, self.merge = folder, merge
        self.held: list[Any] = []
        self.size = self.files = self.members = 0

    def add(self, states: Any) -> None:
        self.held.append(states)
        self.size += states.nbytes
        self.members += arrow().compute.sum(states[MEMBERS]).as_py()
        if self.size > STATES:
            self._merge()
            if self.size > STATES // 2:
                self.write()

    def _merge(self) -> None:
        if len(self.held) > 1:  # a table has one state per set
            states = arrow().concat_tables(self.held)
            self.held = [states if self.merge is None else self.merge(states)]
            self.size = self.held[0].nbytes

    def write(self) -> None:
        if self.held:
            self._merge()
            keys = hashes(self.held[0].column(0))
            order = np.argsort(keys, kind="stable")
            states = self.held[0].take(arrow().array(order)).append_column(_HASH, arrow().array(keys[order]))
            with arrow().ipc.new_file(self.folder / f"{self.files}.arrow", states.schema) as file:
                file.write_table(states.combine_chunks())
            self.held, self.size, self.files = [], 0, self.files + 1


class _Results:
    """A Parquet file of results, which is not created where there are none."""

    def __init__(self, path: Path, job: Job) -> None:
        self.path, self.schema, self.sets = path, job.result, 0
        self._sink: Any = None

    def write(self, table: Any) -> None:
        self._sink = self._sink or parquet_writer(self.path, self.schema)
        self._sink.write_table(table.cast(self.schema), 1 << 12 if MEMBERS in table.column_names else 1 << 16)
        self.sets += len(table.column(0).unique())  # the rows of a set are never in two tables

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()


def _split_whole(table: Any, by: str, span: Any) -> tuple[Any, Any]:
    """Rows of sets that are whole in a sorted table, and the others: the first and last set may have rows elsewhere."""
    compute, names = arrow().compute, table[by]
    low, high = (arrow().scalar(name, names.type) for name in span)
    start = max(compute.sum(compute.less_equal(names, name)).as_py() or 0 for name in (names[0], low))
    stop = min(compute.sum(compute.less(names, name)).as_py() or 0 for name in (names[-1], high))
    stop = max(start, stop)
    return table.slice(start, stop - start), arrow().concat_tables([table.slice(0, start), table.slice(stop)])
