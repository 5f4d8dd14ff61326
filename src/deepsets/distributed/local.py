"""Engine for one machine: worker processes over row groups, states partitioned by the hash of their set on disk.

1. Each part of the tables is encoded to states, which are written as Arrow files, sorted by the hash of their set.
2. Each range of hashes is read from all these files, merged and decoded.

Every finished step is a folder with the size and checksum of its files, so that an interrupted run can be resumed.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..files import atomic_folder, locked
from ..io.files import arrow
from ..train import keep_memory
from .functions import MEMBERS, Merge, hashes
from .jobs import Input, Job, run_part
from .partition import Part, is_sorted, tables
from .storage import parquet_writer, publish
from .work import Work, read_done, write_done

STATES = 64 << 20  # bytes of states that are held, and merged, at a time
FEW = 200_000  # members, a second or two of work: this process is done before others would have started
PATIENCE = 5  # process pools in a row that may break before a step is finished
_HASH = "__hash__"


class Local:
    """Engine for one machine.

    Parameters
    ----------
    workers : int or None
        Number of processes, one thread each; by default one per core, or none where there is little to do.
    """

    def __init__(self, workers: int | None) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.workers, self.given = workers or cores, workers is not None

    def run(self, job: Job) -> dict[str, Any]:
        """Run a job, resuming what an interrupted run of the same job has finished."""
        plain = job._replace(progress=None)  # for the workers
        with Work(job) as work, locked(work.folder):
            steps = [(input, part) for input in job.inputs for part in input.parts]
            folders = [work.folder / f"map-{number:06d}" for number in range(len(steps))]
            todo = [number for number, folder in enumerate(folders) if read_done(folder) is None]
            few = sum(part.members for _, part in steps) < FEW
            for number in self.map(_Map(plain, steps, folders), todo, few):
                if job.progress is not None:
                    job.progress(steps[number][1].members)
            done = [read_done(folder, verify=False) or {} for folder in folders]
            outs = [str(folder / "out.parquet") for folder, facts in zip(folders, done, strict=True) if facts["sets"]]
            sets = sum(facts["sets"] for facts in done)
            spills = [file for folder in folders for file in sorted(folder.glob("*.arrow"))]
            if spills:
                count = -(-sum(file.stat().st_size for file in spills) // STATES)
                merged = [work.folder / f"reduce-{count}-{number:06d}" for number in range(count)]
                left = [number for number, folder in enumerate(merged) if read_done(folder) is None]
                for _ in self.map(_Reduce(plain, spills, merged), left, len(left) <= 4):
                    pass
                sets += sum((read_done(folder, verify=False) or {})["sets"] for folder in merged)
                outs += [str(folder / "out.parquet") for folder in merged]
            publish(outs, job.output, job.manifest, sort=job.result.names[0] if job.reduce else None)
        members = sum(facts["members"] for facts in done)
        return {"sets": sets, "members": members, "parts": len(steps), "resumed": len(steps) - len(todo)}

    def collect(self, input: Input, progress: Any = None) -> Any:
        """Return the results of an input's function for all its parts, as one table."""
        few = sum(part.members for part in input.parts) < FEW
        found = []
        for table in self.map(_Collect(input), input.parts, few):
            found.append(table)
            if progress is not None:
                progress(input.parts[len(found) - 1].members)
        return arrow().concat_tables(found)

    def map(self, function: Any, items: Sequence[Any], few: bool = False) -> Iterator[Any]:
        """Yield `function(item)` for all items, in order. A worker that dies is replaced, and its item done again.

        With one worker or item, or if there are few items and no number of workers was given, this process does it.
        """
        if min(self.workers, len(items)) <= 1 or (few and not self.given):
            yield from map(function, items)
            return
        with tempfile.TemporaryDirectory(prefix="deepsets-") as folder:
            path = Path(folder) / "function"
            path.write_bytes(pickle.dumps(function))  # read once in each process, not sent with each item
            yield from self._in_processes(str(path), list(items))

    def _in_processes(self, path: str, items: list[Any]) -> Iterator[Any]:
        first, broken = 0, 0
        while first < len(items):
            before = first
            pool = ProcessPoolExecutor(min(self.workers, len(items) - first), _context(), initializer=_begin)
            try:
                for future in [pool.submit(_call, path, item) for item in items[first:]]:
                    yield future.result()
                    first += 1
            except BrokenProcessPool:
                broken = 0 if first > before else broken + 1
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
            if broken == PATIENCE:
                raise RuntimeError(
                    f"worker processes died {PATIENCE} times without finishing one of the {len(items) - first} steps "
                    "that are left: is there enough memory? Fewer workers need less."
                )


class _Map:
    """Encodes a part. Sets that are known to be whole are predicted directly, others are written as states."""

    def __init__(self, job: Job, steps: list[tuple[Input, Part]], folders: list[Path]) -> None:
        self.job, self.steps, self.folders = job, steps, folders

    def __call__(self, number: int) -> int:
        folder, (input, part) = self.folders[number], self.steps[number]
        if read_done(folder) is not None:  # by a worker that died before it could report it
            return number
        with atomic_folder(folder) as new:
            results = _Results(new / "out.parquet", self.job)
            members = 0
            if self.job.reduce is None:
                for table in run_part(input, part):
                    results.write(table)
                members = part.members
            else:
                spill = _Spill(new, input.merge)
                direct = input.direct is not None and part.own is not None and is_sorted(part, input.by or "")
                for table in tables(part, input.columns, nested=input.nested, by=input.by):
                    rest = table
                    if direct:
                        whole, rest = _split_whole(table, input.by, part.own)
                        if len(whole):
                            results.write(input.direct(whole))
                            members += len(whole)
                    if len(rest):
                        states = input.function(rest)
                        members += arrow().compute.sum(states[MEMBERS]).as_py()
                        spill.add(states)
                spill.close()
            results.close()
            write_done(new, members=members, sets=results.sets)
        return number


class _Reduce:
    """Merges the states of a range of hashes, and writes the results."""

    def __init__(self, job: Job, spills: list[Path], folders: list[Path]) -> None:
        self.job, self.spills, self.folders = job, spills, folders

    def __call__(self, number: int) -> int:
        if read_done(self.folders[number]) is not None:
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
            write_done(new, sets=results.sets)
        return number


class _Collect:
    def __init__(self, input: Input) -> None:
        self.input = input

    def __call__(self, part: Part) -> Any:
        return arrow().concat_tables(run_part(self.input, part))


class _Spill:
    """States of a part: merged while they are few, written as a file sorted by hash where they are many."""

    def __init__(self, folder: Path, merge: Merge | None) -> None:
        self.folder, self.merge, self.held, self.size, self.files = folder, merge, [], 0, 0

    def add(self, states: Any) -> None:
        self.held.append(states)
        self.size += states.nbytes
        if self.size > STATES:
            self._merge()
            if self.size > STATES // 2:
                self.close()

    def _merge(self) -> None:
        states = arrow().concat_tables(self.held)
        self.held = [states if self.merge is None else self.merge(states)]
        self.size = self.held[0].nbytes

    def close(self) -> None:
        if not self.held:
            return
        self._merge()
        states = self.held[0]
        keys = hashes(states.column(0))
        order = np.argsort(keys, kind="stable")
        states = states.take(arrow().array(order)).append_column(_HASH, arrow().array(keys[order]))
        with arrow().ipc.new_file(self.folder / f"{self.files}.arrow", states.schema) as file:
            file.write_table(states.combine_chunks())
        self.held, self.size, self.files = [], 0, self.files + 1


class _Results:
    """A Parquet file of results, which is not created where there are none."""

    def __init__(self, path: Path, job: Job) -> None:
        self.path, self.job, self.sets, self._sink = path, job, 0, None

    def write(self, table: Any) -> None:
        table = table.cast(self.job.result)
        self._sink = self._sink or parquet_writer(self.path, self.job.result)
        self._sink.write_table(table, 1 << 16 if MEMBERS not in table.column_names else 4096)
        self.sets += len(table.column(0).unique())  # the rows of a set are never in two tables

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()


def _split_whole(table: Any, by: str, own: tuple[Any, Any]) -> tuple[Any, Any]:
    """Rows of sets that are whole in a sorted table, and the others: the first and last set may have rows elsewhere."""
    pa = arrow()
    names = table[by]
    low, high = (None if bound is None else pa.scalar(bound, names.type) for bound in own)
    start = _first(names, names[0], after=True)
    start = start if low is None else max(start, _first(names, low, after=True))
    stop = _first(names, names[-1], after=False)
    stop = max(start, stop if high is None else min(stop, _first(names, high, after=False)))
    return table.slice(start, stop - start), pa.concat_tables([table.slice(0, start), table.slice(stop)])


def _first(names: Any, name: Any, *, after: bool) -> int:
    """The first row of a sorted column with a name that is not less than `name`, or greater."""
    compute = arrow().compute
    return compute.sum((compute.less_equal if after else compute.less)(names, name)).as_py() or 0


def _context() -> Any:
    """Processes come from a server that has imported what they need and started no threads, or are spawned."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["deepsets.distributed", "deepsets.estimators", "pyarrow.dataset"])
    return context


def _begin() -> None:
    torch.set_num_threads(1)
    keep_memory()  # a third of the time of phi and pooling went into pages that came and went with every batch
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


_function: tuple[str, Any] = "", None  # of this process


def _call(path: str, item: Any) -> Any:
    global _function  # noqa: PLW0603  # read once for all items of a run
    if _function[0] != path:
        _function = path, pickle.loads(Path(path).read_bytes())
    return _function[1](item)
