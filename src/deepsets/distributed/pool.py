"""Tables to states and answers: every part to states, these merged by the name of their set, then rho."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from ..io.files import arrow
from ..io.source import Source, table_files
from .direct import Direct, Unsorted, with_own_names
from .engines import Engine
from .gather import Gather
from .local import Local
from .merge import ANSWERS, RANGE, SAMPLE, Merge, cut_ranges, write_run
from .partition import PART, Own, Part, are_few, batches, cut
from .state_codec import Coder, load_answerer, load_model, model_identity
from .states import Heading, States, heading_of
from .work import Work, finished, part_path, stamps

FEW = 4  # ranges of states

Progress = Callable[[int], None]


def pool(
    model: Any,
    table: str | Path,
    output: str | Path,
    *,
    by: str | None = None,
    features: Sequence[str] | None = None,
    z: Sequence[str] = (),
    merge: str | Path | None = None,
    remove: bool = False,
    engine: Engine = Engine(),  # noqa: B008  # it cannot change
    part: int = PART,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Writes the states of all sets of a table, sorted by their names, and says how many there are.

    model:  a model folder, a fitted `SetRegressor` or `SetClassifier`, or a `DeepSet`.
    table:  a file, or a folder of Parquet files; the rows of a set may stand anywhere.
    output: a Parquet file, or a folder for several (a path without suffix).
    merge:  a table of states, to which these are added; with `remove` from which they are taken.
    part:   members that are done again after a crash, at most, or a row group.
    """
    output = Path(output)
    if output.suffix not in ("", ".parquet", ".pq"):
        raise ValueError(f"states are written as Parquet, a file or a folder; found {output}.")
    if remove and merge is None:
        raise ValueError("members are taken away from states: say from which, by merge.")
    given = load_answerer(model)
    source = Source(given, table_files(table), by, features=features, z=z)
    heading = _heading(given, source)
    old = None if merge is None else Path(merge)
    if old is not None:
        heading.check(_states_heading(old), old)
    run = _Run(given if not isinstance(model, str | Path) else model, heading, engine, old, remove, False)
    run.check(given, source)
    return run.do(output, source, part, overwrite, progress)


def predict_scattered(
    model: Any,
    table: str | Path,
    output: str | Path,
    *,
    by: str | None = None,
    features: Sequence[str] | None = None,
    z: Sequence[str] = (),
    engine: Engine = Engine(),  # noqa: B008
    part: int = PART,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Writes the answers for all sets of a table, or of a table of states, sorted by the names of the sets.

    The rows of a set may stand anywhere. See `pool` for the rest.
    """
    given = load_answerer(model)
    kept = heading_of(Path(table))
    source = None
    if kept is None:
        source = Source(given, table_files(table), by, features=features, z=z)
        heading = _heading(given, source)
    else:
        heading = kept._replace(model=model_identity(given))
        heading.check(kept, Path(table))
    old = None if kept is None else Path(table)
    run = _Run(given if not isinstance(model, str | Path) else model, heading, engine, old, False, True)
    run.check(given, source)
    return run.do(Path(output), source, part, overwrite, progress)


class _Run:
    """One description of the work, whoever does it."""

    def __init__(
        self, model: Any, heading: Heading, engine: Engine, old: Path | None, remove: bool, answers: bool
    ) -> None:
        self.model, self.heading, self.engine = model, heading, engine
        self.old, self.remove, self.answers = old, remove, answers

    def check(self, model: Any, source: Source | None) -> None:
        """What cannot be done is said before any work."""
        coder = Coder(model, len(self.heading.features), len(self.heading.z))
        if self.remove:
            coder.remove(coder.empty, coder.empty)
        if source is not None and self.old is None and not source.shape.nested and source.columns.by is None:
            raise ValueError("say which column names the set.")

    def do(
        self, output: Path, source: Source | None, members: int, overwrite: bool, progress: Progress | None
    ) -> dict[str, Any]:
        start = time.perf_counter()
        parts = [] if source is None else cut(source, members)
        if self.answers and source is not None:
            parts = with_own_names(parts, source)
        crew = self.engine.open()
        work = Work(output, self._identity(source, members), overwrite=overwrite)
        todo = [parts[number] for number in work.missing("rows", len(parts))]
        with work, crew:
            for rows in crew.run(Pool, (self.model, source, self.heading, work.folder), todo, are_few(parts)):
                if progress is not None:
                    progress(rows)
            ranges = cut_ranges(work.folder, self.heading, self.old)
            args = (self.model, self.heading, work.folder, self.old, self.remove, self.answers)
            merges = work.missing("out", ranges)
            if len(merges) <= FEW:
                crew = Local(1)  # a second or two for this process, less than new actors of Ray need to start
            for _ in crew.run(Merge, args, merges):
                pass
            facts = work.assemble(ranges)
        facts |= {"parts": len(parts), "found_done": len(parts) - len(todo)}
        return facts | {"seconds": round(time.perf_counter() - start, 3)}

    def _identity(self, source: Source | None, members: int) -> dict[str, Any]:
        files = [*([] if source is None else source.files), *([] if self.old is None else [self.old])]
        return {
            "columns": self.heading._asdict(),
            "tables": stamps(files),
            "part": members,
            "range": RANGE,
            "answers": self.answers,
            "old": self.old is not None,
            "remove": self.remove,
        }


class Pool:
    """A worker: rows of a part to states, each set once in a run of bounded size; answers where that is enough."""

    def __init__(self, model: Any, source: Source, heading: Heading, folder: Path) -> None:
        self.source, self.heading, self.folder = source, heading, folder
        self.coder = Coder(load_model(model), len(heading.features), len(heading.z))

    def __call__(self, part: Part) -> int:
        path = part_path(self.folder, "rows", part.number)
        if path.is_dir():  # done by a worker that was lost before it could say so
            return 0
        if part.own is not None:
            try:
                return self._do(part, path, part.own)
            except Unsorted:
                pass
        return self._do(part, path, None)

    def _do(self, part: Part, path: Path, own: Own | None) -> int:
        with finished(path) as new:
            names: list[Any] = []
            runs = count()

            def spill(states: States) -> None:
                write_run(states, self.heading, new / f"{next(runs)}.arrow")
                names.append(states.ids[::SAMPLE])

            direct = None if own is None else Direct(self.coder, self.heading.by, own, new / ANSWERS)
            gather = Gather(self.coder, spill, None if direct is None else direct.rest)
            for piece in batches(self.source, part):
                if direct is not None:
                    direct.check(piece.ids)
                    names.append(piece.ids[::SAMPLE])
                gather.add(piece)
            gather.finish()
            if direct is not None:
                direct.close()
            arrow().parquet.write_table(arrow().table({"id": arrow().concat_arrays(names)}), new / "names.pq")
        return gather.rows


def _heading(model: Any, source: Source) -> Heading:
    return Heading(source.naming, source.columns.features, source.columns.z, model_identity(model))


def _states_heading(path: Path) -> Heading:
    found = heading_of(path) if path.exists() else None
    if found is None:
        what = "is no table of states, as `deepsets pool` writes them" if path.exists() else "does not exist"
        raise ValueError(f"{path} {what}.")
    return found
