"""Runs of states to one state a set, a range of names at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..io.files import arrow
from .state_codec import Coder, load_model
from .states import GROUP, MEMBERS, Heading, States
from .work import OUT, finished, parquet_writer, part_path, write_counts

RANGE = 64 << 20  # bytes of states that are merged at a time
SAMPLE = 256  # of so many states one name is looked at to cut the ranges: one of 1 MB, at 4 kB a state
ANSWERS = "answers.ipc"  # of sets that need no merging, in the folder of a part


def cut_ranges(folder: Path, heading: Heading, old: Path | None) -> int:
    """Cuts all names into ranges with about equally many states, once for a run; gives the number of ranges."""
    pa = arrow()
    path = part_path(folder, "ranges", 0)
    if not path.is_dir():
        runs = runs_of(folder)
        names = [pa.parquet.read_table(file)["id"] for file in sorted(folder.glob("rows-*/names.pq"))]
        size = sum(file.stat().st_size for file in [*runs, *folder.glob(f"rows-*/{ANSWERS}")])
        if old is not None:
            size += old.stat().st_size
            names.append(_sampled(old, heading.by))
        ids = pa.chunked_array([chunk for name in names for chunk in name.chunks], names[0].type).sort()
        at = np.linspace(0, len(ids), -(-size // RANGE), endpoint=False).astype(np.int64)[1:]
        cuts = ids.take(pa.array(at)).unique()
        cuts = cuts.filter(pa.compute.greater(cuts, ids[0]))  # nothing is below the first
        with finished(path) as new:
            pa.parquet.write_table(pa.table({"id": cuts}), new / "names.pq")
    return len(bounds(folder)) + 1


def _sampled(states: Path, by: str) -> Any:
    pa = arrow()
    with pa.parquet.ParquetFile(states) as file:
        chunks = [batch.column(0)[::SAMPLE] for batch in file.iter_batches(1 << 16, columns=[by])]
        return pa.chunked_array(chunks, file.schema_arrow.field(by).type)


def bounds(folder: Path) -> Any:
    """The names at which a range begins, but for the first."""
    return arrow().parquet.read_table(part_path(folder, "ranges", 0) / "names.pq")["id"].combine_chunks()


def runs_of(folder: Path) -> list[Path]:
    """All runs of states, in the order of their parts."""
    return sorted(folder.glob("rows-*/*.arrow"), key=lambda file: (file.parent.name, int(file.stem)))


def write_run(states: States, heading: Heading, path: Path) -> None:
    """States that are read back soon, as an Arrow file: nothing is encoded."""
    table = states.to_table(heading)
    with arrow().ipc.new_file(path, table.schema) as file:
        file.write_table(table)


def mapped(path: Path) -> Any:
    """A run as a table that lies in its file."""
    return arrow().ipc.open_file(arrow().memory_map(str(path))).read_all()


class Merge:
    """A worker: all states of a range of names to one for each set; then the answers, or the states themselves."""

    def __init__(
        self, model: Any, heading: Heading, folder: Path, old: Path | None, remove: bool, answers: bool
    ) -> None:
        self.heading, self.folder, self.old, self.remove, self.answers = heading, folder, old, remove, answers
        self.coder = Coder(load_model(model), len(heading.features), len(heading.z))
        self.bounds = bounds(folder)

    def __call__(self, number: int) -> int:
        path = part_path(self.folder, "out", number)
        if path.is_dir():
            return 0
        states = self._states(number)
        members = int(states.members.sum())
        if self.answers:
            answers = self.coder.decode(states.parts, states.z)
            table = arrow().table({self.heading.by: states.ids, **answers})
            direct = [self._range(mapped(file), number) for file in sorted(self.folder.glob(f"rows-*/{ANSWERS}"))]
            if direct:
                members += sum(arrow().compute.sum(each[MEMBERS]).as_py() or 0 for each in direct)
                table = arrow().concat_tables([table, *(each.drop_columns(MEMBERS) for each in direct)])
                table = table.sort_by(self.heading.by)
        else:
            table = states.to_table(self.heading)
        with finished(path) as new:
            with parquet_writer(new / OUT, table.schema) as write:
                write.write_table(table, 1 << 16 if self.answers else GROUP)
            write_counts(new, len(table), members)
        return len(table)

    def _states(self, number: int) -> States:
        found = [self._range(run, number) for run in map(mapped, runs_of(self.folder))]
        if self.old is None:
            return self._joined(found).united(self.coder)
        old = self._old(number)
        if self.remove:
            return self._joined([old]).without(self._joined(found).united(self.coder), self.coder)
        return self._joined([old, *found]).united(self.coder)

    def _joined(self, tables: list[Any]) -> States:
        return States.from_table(arrow().concat_tables(tables), self.heading, self.coder)

    def _range(self, run: Any, number: int) -> Any:
        """The rows of a sorted run that belong to a range: nothing but their names is read to find them."""
        less, total = arrow().compute.less, arrow().compute.sum
        edges = [0, len(run)]
        for side, at in enumerate((number - 1, number)):
            if 0 <= at < len(self.bounds):
                edges[side] = total(less(run[self.heading.by], self.bounds[at])).as_py() or 0
        return run.slice(edges[0], edges[1] - edges[0])

    def _old(self, number: int) -> Any:
        name, bounds = arrow().dataset.field(self.heading.by), self.bounds
        wanted = None if number == 0 else name >= bounds[number - 1]
        if number < len(bounds):
            wanted = name < bounds[number] if wanted is None else wanted & (name < bounds[number])
        return arrow().dataset.dataset(self.old, format="parquet").to_table(filter=wanted)
