"""Engine for one machine: worker processes over row groups, states partitioned on disk by the hash of their set.

First each part of the tables is encoded to states, which are written as Arrow files; then each range of hashes is read
from all these files, merged and decoded. A finished step is a folder with the sizes and checksums of its files, so that
an interrupted run can be resumed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ..files import atomic_path, locked
from ..io.row_groups import Part, is_sorted
from ..io.storage import arrow, is_remote, resolve
from ..io.table_writer import parquet_writer, publish
from .jobs import Input, Job
from .processes import map_in_processes, start_server
from .states import MEMBERS, hashes

STATES = 64 << 20  # bytes of states that are held, and merged, at a time
FEW = 200_000  # members, a second or two of work: this process is done before others would have started
FEW_RANGES = 16  # of hashes, 64 MB each and about a second of merging: likewise
_HASH, _DONE = "__hash__", "done.json"


class Local:
    """Engine for one machine."""

    def __init__(self, workers: int | None = None, address: None = None) -> None:
        self.workers = workers

    def prepare(self, input: Input) -> None:
        """Start what takes a while, before the job is checked and described."""
        if (input.members >= FEW or self.workers is not None) and self.workers != 1 and len(input.parts) > 1:
            start_server()

    def run(self, job: Job) -> dict[str, Any]:
        """Run a job, resuming what an interrupted run of the same job has finished."""
        steps = [(input, part) for input in job.inputs for part in input.parts]
        plain = job._replace(progress=None)  # for the workers
        few = sum(input.members for input in job.inputs) < FEW
        with _work_folder(job) as folder, locked(folder):
            maps = [folder / f"map-{number:06d}" for number in range(len(steps))]
            todo = [number for number, step in enumerate(maps) if finished(step) is None]
            for number in self._map(_Map(plain, steps, maps), todo, few):
                if job.progress is not None:
                    job.progress(steps[number][1].members)
            spills = [file for step in maps for file in sorted(step.glob("*.arrow"))]
            count = -(-sum(file.stat().st_size for file in spills) // STATES)
            reduces = [folder / f"reduce-{count}-{number:06d}" for number in range(count)]
            left = [number for number, step in enumerate(reduces) if finished(step) is None]
            for _ in self._map(_Reduce(plain, spills, reduces), left, len(left) <= FEW_RANGES):
                pass
            facts = {step: json.loads((step / _DONE).read_text()) for step in maps + reduces}
            outs = [str(step / "out.parquet") for step in facts if facts[step]["sets"] or step in reduces]
            publish(outs, job.output, job.manifest, job.sort)
        counts = {name: sum(fact[name] for fact in facts.values()) for name in ("sets", "members")}
        return {**counts, "parts": len(steps), "resumed": len(steps) - len(todo)}

    def collect(self, input: Input, progress: Any = None) -> Any:
        """Return the results of an input's function for all its parts, as one table."""
        found = []
        for part, table in zip(input.parts, self._map(_Collect(input), input.parts, input.members < FEW), strict=True):
            found.append(table)
            if progress is not None:
                progress(part.members)
        return arrow().concat_tables(found)

    def _map(self, function: Callable[[Any], Any], items: Sequence[Any], few: bool) -> Iterator[Any]:
        if few and self.workers is None:
            return map(function, items)
        return map_in_processes(function, items, self.workers)


class _Collect:
    def __init__(self, input: Input) -> None:
        self.input = input

    def __call__(self, part: Part) -> Any:
        return arrow().concat_tables(self.input.results(part))


class _Step:
    """A step by its number, unless a worker has finished it that died before it could report it."""

    def __init__(self, job: Job, inputs: list[Any], folders: list[Path]) -> None:
        self.job, self.inputs, self.folders = job, inputs, folders

    def __call__(self, number: int) -> int:
        if finished(self.folders[number]) is None:
            self.work(number)
        return number

    def work(self, number: int) -> None:
        """Do the step."""
        raise NotImplementedError


class _Map(_Step):
    """Encodes a part. Sets that are known to be whole are predicted directly, others are written as states."""

    def work(self, number: int) -> None:
        input, part = self.inputs[number]
        with _step(self.folders[number]) as (folder, facts), _results(folder, self.job, facts) as write:
            if self.job.reduce is None:
                for table in input.results(part):
                    write(table)
                facts["members"] = part.members
                return
            spill = _Spill(folder, input.merge, self.job.middle)
            direct = input.direct is not None and part.span is not None and is_sorted(part, input.by or "")
            for table in input.tables(part):
                whole, rest = _split_whole(table, input.by or "", part.span) if direct else (table[:0], table)
                if len(whole):
                    write(input.direct(whole))
                if len(rest):
                    spill.add(input.function(rest))
                facts["members"] += len(whole)
            spill.write()
            facts["members"] += spill.members


class _Reduce(_Step):
    """Merges the states of a range of hashes, and writes the results."""

    def work(self, number: int) -> None:
        count, found = len(self.folders), []
        for file in self.inputs:
            table = arrow().ipc.open_file(arrow().memory_map(str(file))).read_all()
            if count > 1:
                table = table.filter(arrow().array(table[_HASH].to_numpy() * count >> 32 == number))
            found.append(table.drop_columns(_HASH))
        states = arrow().concat_tables(found)
        with _step(self.folders[number]) as (folder, facts), _results(folder, self.job, facts) as write:
            write(self.job.reduce(states) if len(states) else self.job.result.empty_table())


class _Spill:
    """States of a part: merged while they are few, written as files where they are many."""

    def __init__(self, folder: Path, merge: Any, schema: Any) -> None:
        self.folder, self.merge, self.schema = folder, merge, schema
        self.held: list[Any] = []
        self.files = self.members = 0

    def add(self, states: Any) -> None:
        self.held.append(states.cast(self.schema))
        self.members += arrow().compute.sum(states[MEMBERS]).as_py()
        if self._size() > STATES:
            self._merge()
            if self._size() > STATES // 2:
                self.write()

    def _size(self) -> int:
        return sum(table.nbytes for table in self.held)

    def _merge(self) -> None:
        if len(self.held) > 1 and self.merge is not None:  # a table has one state per set
            self.held = [self.merge(arrow().concat_tables(self.held))]

    def write(self) -> None:
        if self.held:
            self._merge()
            states = arrow().concat_tables(self.held)
            states = states.append_column(_HASH, arrow().array(hashes(states.column(0))))
            with arrow().ipc.new_file(self.folder / f"{self.files}.arrow", states.schema) as file:
                file.write_table(states)
            self.held, self.files = [], self.files + 1


@contextmanager
def _results(folder: Path, job: Job, facts: dict[str, int]) -> Iterator[Callable[[Any], None]]:
    """Give a function that appends results to a Parquet file, which is not created where there are none."""
    sinks: list[Any] = []

    def write(table: Any) -> None:
        if not sinks:
            sinks.append(stack.enter_context(parquet_writer(folder / "out.parquet", job.result)))
        sinks[0].write_table(table.cast(job.result), 1 << 12 if MEMBERS in table.column_names else 1 << 16)
        facts["sets"] += len(table.column(0).unique())  # the rows of a set are never in two tables

    with ExitStack() as stack:
        yield write


def _split_whole(table: Any, by: str, span: Any) -> tuple[Any, Any]:
    """Rows of sets that are whole in a sorted table, and the others: the first and last set may have rows elsewhere."""
    compute, names = arrow().compute, table[by]
    low, high = (arrow().scalar(name, names.type) for name in span)
    start = max(compute.sum(compute.less_equal(names, name)).as_py() or 0 for name in (names[0], low))
    stop = min(compute.sum(compute.less(names, name)).as_py() or 0 for name in (names[-1], high))
    stop = max(start, stop)
    return table.slice(start, stop - start), arrow().concat_tables([table.slice(0, start), table.slice(stop)])


# ------------------------------------------------------------------------------------------------------- finished steps


@contextmanager
def _work_folder(job: Job) -> Iterator[Path]:
    """Give the folder in which the steps of a job are kept until its output is complete.

    It is ``OUTPUT.parts`` beside a local output, and a folder for temporary files for a remote one. The same job finds
    the steps that an interrupted run has finished; the folder of another job is refused.
    """
    name = f"deepsets-{hashlib.sha256(job.output.encode()).hexdigest()[:16]}"
    path = Path(tempfile.gettempdir()) / name if is_remote(job.output) else Path(resolve(job.output)[1])
    folder = path.with_name(path.name + ".parts")
    file, wanted = folder / "job.json", json.loads(json.dumps(job.manifest))
    found = json.loads(file.read_text()) if file.is_file() else {}
    if found != wanted:
        # A run that was killed before job.json was complete has left hidden files only.
        if any(not entry.name.startswith(".") for entry in folder.glob("*")) and not job.overwrite:
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


@contextmanager
def _step(folder: Path) -> Iterator[tuple[Path, dict[str, int]]]:
    """Give a new folder for the files of a step and a dict for its numbers; it gets its name when it is complete.

    Files are not flushed to the disk: what a power failure leaves incomplete has another checksum.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".step-", ignore_cleanup_errors=True) as name:
        facts = {"sets": 0, "members": 0}
        yield Path(name), facts
        files = {file.name: _checksum(file) for file in sorted(Path(name).iterdir())}
        (Path(name) / _DONE).write_text(json.dumps({**facts, "files": files}))
        Path(name).rename(folder)


def finished(folder: Path) -> dict[str, Any] | None:
    """Return the record of a finished step, or None: a step with a missing or changed file is deleted."""
    try:
        facts = json.loads((folder / _DONE).read_text())
        if all(_checksum(folder / name) == wanted for name, wanted in facts["files"].items()):
            return facts
    except (OSError, ValueError, KeyError):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    return None


def _checksum(file: Path) -> list[int]:
    code = 0
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            code = zlib.crc32(block, code)
    return [file.stat().st_size, code]
