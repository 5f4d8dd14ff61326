"""Engine for one machine: worker processes over row groups, states partitioned on disk by the hash of their set.

First each part of the tables is encoded to states, which are written as Arrow files; then each range of hashes is read
from all these files, merged and decoded. Sizes and checksums of the files of finished steps are recorded, so that an
interrupted run can be resumed.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..files import atomic_path
from ..io.storage import arrow
from ..io.table_writer import parquet_writer, publish
from .jobs import PUBLISHED, Input, Job, work_folder
from .processes import Processes
from .states import MEMBERS, hashes

STATES = 64 << 20  # bytes of states that are held, and merged, at a time
FEW = 200_000  # members, a second or two of work: this process is done before others would have started
SMALL = 100  # members of a set up to which a sum in float32 has as many digits as one in float64
_HASH = "__hash__"
Pieces = Iterator[tuple[str, Any, int]]  # results ("parquet") or states ("arrow"), and how many members they hold


class Local:
    """Engine for one machine."""

    def __init__(self, workers: int | None = None, address: None = None) -> None:
        self.asked, self.processes = workers is not None, Processes(workers)

    def prepare(self, input: Input) -> None:
        """Start what takes a while, before the job is checked and described."""
        if len(input.parts) < 2 or (input.members < FEW and not self.asked):
            self.processes.count = 1
        self.processes.prepare()

    def run(self, job: Job, progress: Any = None) -> dict[str, Any]:
        """Run a job, resuming what an interrupted run of the same job has finished."""
        parts = [(input, part) for input in job.inputs for part in input.parts]
        with _resumed(job) as (folder, steps), closing(self.processes):
            maps = [f"map-{number:06d}" for number in range(len(parts))]
            resumed = sum(name in steps for name in maps)
            for number in self._do(job, folder, steps, maps, partial(_map, job)):
                if progress is not None:
                    progress(parts[number][1].members)
            spills = [folder / name for step in maps for name in steps[step]["files"] if name.endswith(".arrow")]
            count = -(-sum(file.stat().st_size for file in spills) // STATES)
            reduces = [f"reduce-{count}-{number:06d}" for number in range(count)]
            for _ in self._do(job, folder, steps, reduces, partial(_reduce, job, spills, count)):
                pass
            done = [steps[name] for name in maps + reduces]
            outs = [str(folder / name) for step in done for name in step["files"] if name.endswith(".parquet")]
            (folder / PUBLISHED).touch()
            publish(outs, job.output, job.manifest, job.sort, job.result)
        counts = {name: sum(step[name] for step in done) for name in ("sets", "members")}
        return {**counts, "parts": len(parts), "resumed": resumed}

    def collect(self, input: Input, progress: Any = None) -> Any:
        """Return the results of an input's function for all its parts, as one table."""
        self.prepare(input)
        found = []
        with closing(self.processes):
            for part, table in self.processes.map(partial(_collect, input), input.parts):
                found.append(table)
                if progress is not None:
                    progress(part.members)
        return arrow().concat_tables(found)

    def _do(self, job: Job, folder: Path, steps: _Steps, names: list[str], function: Any) -> Iterator[int]:
        """Do the steps that are not done yet."""
        left = [number for number, name in enumerate(names) if name not in steps]
        for number, facts in self.processes.map(partial(_step, job, folder, names, function), left):
            steps.add(names[number], facts)
            yield number


def _collect(input: Input, part: Any) -> Any:
    return arrow().concat_tables(input.results(part))


def _map(job: Job, number: int) -> Pieces:
    """Encode a part. Sets that are known to be whole are predicted directly, others give states."""
    input, part = [(input, part) for input in job.inputs for part in input.parts][number]
    for place, rows in enumerate(input.tables(part)):
        if job.merge is None:
            yield "parquet", input.function(rows), part.members * (place == 0) if input.nested else len(rows)
            continue
        whole, rest = _split_whole(rows, input.by or "") if input.direct else (None, rows)
        if whole:
            yield "parquet", input.direct(whole), len(whole)
        if rest:
            states = input.function(rest).cast(job.middle)
            yield "arrow", states, arrow().compute.sum(states[MEMBERS]).as_py()


def _reduce(job: Job, spills: list[Path], count: int, number: int) -> Pieces:
    """Merge the states of a range of hashes, and decode them."""
    found = []
    for file in spills:
        table = arrow().ipc.open_file(arrow().memory_map(str(file))).read_all()
        found.append(table.filter(arrow().array(table[_HASH].to_numpy() * count >> 32 == number)).drop_columns(_HASH))
    states = arrow().concat_tables(found)
    yield "parquet", job.reduce(states) if states else job.result.empty_table(), 0


def _split_whole(table: Any, by: str) -> tuple[Any, Any]:
    """Rows of small sets that are whole in a table, and the others, which need states.

    The least and the largest set may have rows elsewhere. Sets with many members are pooled in float64.
    """
    compute, names = arrow().compute, table[by]
    if names.null_count:
        return table[:0], table
    if not compute.all(compute.less_equal(names[:-1], names[1:])).as_py():
        table = table.sort_by(by)
        names = table[by]
    changes = compute.not_equal(names[:-1], names[1:]).to_numpy()
    ends = np.concatenate([[0], np.flatnonzero(changes) + 1, [len(names)]])
    sizes = np.diff(ends)
    small = sizes <= SMALL
    small[[0, -1]] = False
    places = np.flatnonzero(small)
    if len(places) and small[places[0] : places[-1] + 1].all():
        start, stop = ends[places[0]], ends[places[-1] + 1]
        return table[start:stop], arrow().concat_tables([table[:start], table[stop:]])
    chosen = np.repeat(small, sizes)
    return table.filter(arrow().array(chosen)), table.filter(arrow().array(~chosen))


def _step(job: Job, folder: Path, names: list[str], function: Callable[[int], Pieces], number: int) -> dict[str, Any]:
    """Write the results and the states of a step as files, 64 MB each; states are merged while they are few."""
    facts: dict[str, Any] = {"sets": 0, "members": 0, "files": {}}
    held: dict[str, list[Any]] = {"parquet": [], "arrow": []}

    def write(kind: str, least: int) -> None:
        if not held[kind] or sum(table.nbytes for table in held[kind]) <= least:
            return
        table = arrow().concat_tables(held[kind])
        if kind == "arrow" and len(held[kind]) > 1:
            table = job.merge(table)
        held[kind] = [table] if table.nbytes <= least // 2 else []
        if held[kind]:
            return
        if kind == "arrow":
            table = table.append_column(_HASH, arrow().array(hashes(table.column(0))))
        file = folder / f"{names[number]}-{len(facts['files'])}.{kind}"
        temporary = file.with_name(f".{os.getpid()}-{file.name}")
        open_file = parquet_writer if kind == "parquet" else arrow().ipc.new_file
        with open_file(temporary, table.schema) as sink:
            sink.write_table(table, 1 << 12 if MEMBERS in table.column_names else 1 << 16)
        facts["files"][file.name] = _checksum(temporary)
        temporary.rename(file)

    for kind, table, members in function(number):
        facts["sets"] += len(table.column(0).unique()) if kind == "parquet" else 0  # never in two tables
        facts["members"] += members
        held[kind].append(table.cast(job.result) if kind == "parquet" else table)
        write(kind, STATES)
    for kind in held:
        write(kind, -1)
    return facts


class _Steps(dict[str, dict[str, Any]]):
    """What is recorded of finished steps. One with a file that is missing or was changed is not finished.

    Files are not flushed to the disk: what a power failure leaves incomplete has another checksum.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / "steps.jsonl"
        for line in self.file.read_text().splitlines() if self.file.exists() else ():
            try:
                facts = json.loads(line)
                if all(_checksum(folder / name) == wanted for name, wanted in facts["files"].items()):
                    self[facts["step"]] = facts
            except (OSError, ValueError):  # ValueError: a line that was cut off
                continue

    def add(self, name: str, facts: dict[str, Any]) -> None:
        """Record a finished step."""
        self[name] = facts
        with self.file.open("a") as file:
            file.write("\n" + json.dumps({"step": name, **facts}))


def _checksum(file: Path) -> list[int]:
    code = 0
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            code = zlib.crc32(block, code)
    return [file.stat().st_size, code]


@contextmanager
def _resumed(job: Job) -> Iterator[tuple[Path, _Steps]]:
    """Give the folder in which the steps of a job are kept until its output is complete, and those that are finished.

    The same job finds the steps of an interrupted run; the folder of another job is refused.
    """
    folder = work_folder(job.output)
    file, wanted = folder / "job.json", json.loads(json.dumps(job.manifest))
    found = json.loads(file.read_text()) if file.is_file() else {}
    if found != wanted:
        # A run that was killed before job.json was complete has left hidden files only.
        used = any(not entry.name.startswith(".") for entry in folder.glob("*"))
        if used and not job.overwrite and not (folder / PUBLISHED).exists():
            differ = [name for name, value in wanted.items() if found.get(name) != value]
            raise ValueError(
                f"{folder} holds the steps of another, interrupted run (different: {', '.join(differ)}): delete it, "
                "or --overwrite."
            )
        shutil.rmtree(folder, ignore_errors=True)
        with atomic_path(file) as temporary:
            temporary.write_text(json.dumps(wanted, indent=1))
    try:
        yield folder, _Steps(folder)
    except ValueError:  # an error in the tables: these steps are of no use
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
