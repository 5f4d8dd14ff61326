"""Engine for one machine: workers over row groups, states partitioned on disk by the hash of their set.

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
from ..io.table_writer import parquet_writer
from .jobs import Input, Job, Progress, work_folder
from .states import MEMBERS, hashes
from .workers import Workers

STATES = 64 << 20  # bytes of states that are held, and merged, at a time
FEW = 20_000_000  # members: half a minute of work. To start a process costs two seconds, a thread nothing.
_HASH, _STEPS = "__hash__", "steps.jsonl"
Pieces = Iterator[tuple[str, Any, int]]  # results ("parquet") or states ("arrow"), and how many members they hold


class Local:
    """Engine for one machine."""

    def __init__(self, workers: int | None = None, address: None = None) -> None:
        self.workers = workers

    def run(self, job: Job, progress: Progress | None = None) -> dict[str, Any]:
        """Run a job, resuming what an interrupted run of the same job has finished."""
        parts = [part for input in job.inputs for part in input.parts]
        maps = {f"map-{number:06d}": partial(_map, number=number) for number in range(len(parts))}
        with _resumed(job) as folder, closing(self._workers(partial(_step, job, folder), parts)) as workers:
            steps = _finished(folder)
            left = {name: part.members for name, part in zip(maps, parts, strict=True) if name not in steps}

            def do(wanted: dict[str, Any]) -> None:
                for (name, _), facts in workers.map([item for item in wanted.items() if item[0] not in steps]):
                    steps[name] = facts
                    with (folder / _STEPS).open("a") as file:
                        file.write("\n" + json.dumps({"step": name, **facts}))
                    if progress is not None and name in left:
                        progress(left[name], sum(left.values()))

            do(maps)
            spills = [folder / file for name in maps for file in steps[name]["files"] if file.endswith(".arrow")]
            count = -(-sum(file.stat().st_size for file in spills) // STATES)
            reduces = {f"reduce-{count}-{i:06d}": partial(_reduce, spills, count, i) for i in range(count)}
            do(reduces)
            done = [steps[name] for name in (*maps, *reduces)]
            job.publish([str(folder / file) for step in done for file in step["files"] if file.endswith(".parquet")])
        counts = {name: sum(step[name] for step in done) for name in ("sets", "members")}
        return {**counts, "parts": len(parts), "resumed": len(parts) - len(left)}

    def collect(self, input: Input, progress: Progress | None = None) -> Any:
        """Return the results of an input's function for all its parts, as one table."""
        found = []
        with closing(self._workers(partial(_collect, input), input.parts)) as workers:
            for part, table in workers.map(input.parts):
                found.append(table)
                if progress is not None:
                    progress(part.members, input.members)
        return arrow().concat_tables(found)

    def _workers(self, function: Callable[[Any], Any], parts: list[Any]) -> Workers:
        few = sum(part.members for part in parts) < FEW
        return Workers(function, self.workers, processes=self.workers is not None or not few)


def _collect(input: Input, part: Any) -> Any:
    return arrow().concat_tables(input.results(part))


def _map(job: Job, *, number: int) -> Pieces:
    """Encode a part. Sets that are known to be whole are predicted directly, others give states."""
    input, part = [(input, part) for input in job.inputs for part in input.parts][number]
    for place, rows in enumerate(input.tables(part)):
        if job.merge is None:
            yield "parquet", input.function(rows), part.members * (place == 0) if input.nested else len(rows)
            continue
        if input.direct:  # the least and the largest set may have rows elsewhere
            compute, names = arrow().compute, rows[input.by]
            edge = compute.is_in(names, value_set=arrow().array(compute.min_max(names).values(), names.type))
            rows, whole = rows.filter(edge), rows.filter(compute.invert(edge))  # noqa: PLW2901
            if whole:
                yield "parquet", input.direct(whole), len(whole)
        states = input.function(rows)
        yield "arrow", states, arrow().compute.sum(states[MEMBERS]).as_py()


def _reduce(spills: list[Path], count: int, number: int, job: Job) -> Pieces:
    """Merge the states of a range of hashes, and decode them."""
    found = []
    for file in spills:
        table = arrow().ipc.open_file(arrow().memory_map(str(file))).read_all()
        found.append(table.filter(arrow().array(table[_HASH].to_numpy() * count >> 32 == number)).drop_columns(_HASH))
    states = arrow().concat_tables(found, promote_options="permissive")
    yield "parquet", job.reduce(states) if states else job.result.empty_table(), 0


def _step(job: Job, folder: Path, item: tuple[str, Callable[[Job], Pieces]]) -> dict[str, Any]:
    """Write the results and the states of a step as files, 64 MB each; states are merged while they are few."""
    name, function = item
    facts: dict[str, Any] = {"sets": 0, "members": 0, "files": {}}
    held: dict[str, list[Any]] = {"parquet": [], "arrow": []}

    def write(kind: str, least: int) -> None:
        if not held[kind] or sum(table.nbytes for table in held[kind]) <= least:
            return
        table = arrow().concat_tables(held[kind], promote_options="permissive")
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


def _finished(folder: Path) -> dict[str, dict[str, Any]]:
    """Steps that are recorded as finished, without those that have a file that is missing or was changed.

    Files are not flushed to the disk: what a power failure leaves incomplete has another checksum.
    """
    steps, file = {}, folder / _STEPS
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            facts = json.loads(line)
            if all(_checksum(folder / name) == wanted for name, wanted in facts["files"].items()):
                steps[facts["step"]] = facts
        except (OSError, ValueError):  # ValueError: a line that was cut off
            continue
    return steps


def _checksum(file: Path) -> list[int]:
    code = 0
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            code = zlib.crc32(block, code)
    return [file.stat().st_size, code]


@contextmanager
def _resumed(job: Job) -> Iterator[Path]:
    """Give the folder in which the steps of a job are kept until its output is complete.

    The same job finds the steps of an interrupted run; the folder of another job is refused.
    """
    folder = work_folder(job.output)
    file, wanted = folder / "job.json", json.loads(json.dumps(job.manifest))
    found = json.loads(file.read_text()) if file.is_file() else {}
    if found != wanted:
        # A run that was killed before job.json was complete has left hidden files only.
        if not job.overwrite and any(not entry.name.startswith(".") for entry in folder.glob("*")):
            differ = [name for name, value in wanted.items() if found.get(name) != value]
            raise ValueError(
                f"{folder} holds the steps of another, interrupted run (different: {', '.join(differ)}): delete it, "
                "or --overwrite."
            )
        shutil.rmtree(folder, ignore_errors=True)
        with atomic_path(file) as temporary:
            temporary.write_text(json.dumps(wanted, indent=1))
    try:
        yield folder
    except ValueError:  # an error in the tables: these steps are of no use
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
