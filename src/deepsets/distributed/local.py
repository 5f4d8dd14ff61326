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

from ..files import atomic_path
from ..io.storage import arrow
from ..io.table_writer import parquet_writer, publish
from .jobs import PUBLISHED, Input, Job, Progress, work_folder
from .processes import Processes
from .states import MEMBERS, hashes

STATES = 64 << 20  # bytes of states that are held, and merged, at a time
FEW = 200_000  # members, a second or two of work: this process is done before others would have started
_HASH = "__hash__"
Pieces = Iterator[tuple[str, Any, int]]  # results ("parquet") or states ("arrow"), and how many members they hold


class Local:
    """Engine for one machine."""

    def __init__(self, workers: int | None = None, address: None = None) -> None:
        self.workers = workers

    def run(self, job: Job, progress: Progress | None = None) -> dict[str, Any]:
        """Run a job, resuming what an interrupted run of the same job has finished."""
        parts = [part for input in job.inputs for part in input.parts]
        with (
            _resumed(job) as (folder, steps),
            closing(self._processes(partial(_step, job, folder), parts)) as processes,
        ):
            maps = {f"map-{number:06d}": partial(_map, number=number) for number in range(len(parts))}
            members = {name: part.members for name, part in zip(maps, parts, strict=True) if name not in steps}
            for name in steps.do(maps, processes):
                if progress is not None:
                    progress(members[name], sum(members.values()))
            spills = [folder / file for name in maps for file in steps[name]["files"] if file.endswith(".arrow")]
            count = -(-sum(file.stat().st_size for file in spills) // STATES)
            reduces = {f"reduce-{count}-{i:06d}": partial(_reduce, spills, count, i) for i in range(count)}
            list(steps.do(reduces, processes))
            done = [steps[name] for name in (*maps, *reduces)]
            outs = [str(folder / file) for step in done for file in step["files"] if file.endswith(".parquet")]
            (folder / PUBLISHED).touch()
            publish(outs, job.output, job.manifest, job.sort, job.result)
        counts = {name: sum(step[name] for step in done) for name in ("sets", "members")}
        return {**counts, "parts": len(parts), "resumed": len(parts) - len(members)}

    def collect(self, input: Input, progress: Progress | None = None) -> Any:
        """Return the results of an input's function for all its parts, as one table."""
        found = []
        with closing(self._processes(partial(_collect, input), input.parts)) as processes:
            for part, table in processes.map(input.parts):
                found.append(table)
                if progress is not None:
                    progress(part.members, input.members)
        return arrow().concat_tables(found)

    def _processes(self, function: Callable[[Any], Any], parts: list[Any]) -> Processes:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        few = len(parts) < 2 or sum(part.members for part in parts) < FEW
        return Processes(function, self.workers or (0 if few else cores))


def _collect(input: Input, part: Any) -> Any:
    return arrow().concat_tables(input.results(part))


def _map(job: Job, *, number: int) -> Pieces:
    """Encode a part. Sets that are known to be whole are predicted directly, others give states."""
    input, part = [(input, part) for input in job.inputs for part in input.parts][number]
    for place, table in enumerate(input.tables(part)):
        rows = table
        if job.merge is None:
            yield "parquet", input.function(rows), part.members * (place == 0) if input.nested else len(rows)
            continue
        if input.direct:  # the least and the largest set may have rows elsewhere
            compute, names = arrow().compute, rows[input.by]
            edge = compute.is_in(names, value_set=arrow().array(compute.min_max(names).values(), names.type))
            rows, whole = table.filter(edge), table.filter(compute.invert(edge))
            if whole:
                yield "parquet", input.direct(whole), len(whole)
        states = input.function(rows).cast(job.middle)
        yield "arrow", states, arrow().compute.sum(states[MEMBERS]).as_py()


def _reduce(spills: list[Path], count: int, number: int, job: Job) -> Pieces:
    """Merge the states of a range of hashes, and decode them."""
    found = []
    for file in spills:
        table = arrow().ipc.open_file(arrow().memory_map(str(file))).read_all()
        found.append(table.filter(arrow().array(table[_HASH].to_numpy() * count >> 32 == number)).drop_columns(_HASH))
    states = arrow().concat_tables(found)
    yield "parquet", job.reduce(states) if states else job.result.empty_table(), 0


def _step(job: Job, folder: Path, item: tuple[str, Callable[[Job], Pieces]]) -> dict[str, Any]:
    """Write the results and the states of a step as files, 64 MB each; states are merged while they are few."""
    name, function = item
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
        file = folder / f"{name}-{len(facts['files'])}.{kind}"
        temporary = file.with_name(f".{os.getpid()}-{file.name}")
        open_file = parquet_writer if kind == "parquet" else arrow().ipc.new_file
        with open_file(temporary, table.schema) as sink:
            sink.write_table(table, 1 << 12 if MEMBERS in table.column_names else 1 << 16)
        facts["files"][file.name] = _checksum(temporary)
        temporary.rename(file)

    for kind, table, members in function(job):
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

    def do(self, wanted: dict[str, Any], processes: Processes) -> Iterator[str]:
        """Do and record the steps that are not finished."""
        for (name, _), facts in processes.map([item for item in wanted.items() if item[0] not in self]):
            self[name] = facts
            with self.file.open("a") as file:
                file.write("\n" + json.dumps({"step": name, **facts}))
            yield name


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
