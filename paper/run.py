"""Runs an experiment: every method, seed and part that has no result yet."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .experiment import Experiment, Trial
from .record import Record, slug
from .registry import experiment


def run(
    name: str,
    folder: str | Path = "results",
    *,
    full: bool = False,
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    resume: bool = False,
    progress: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> list[Record]:
    """Runs experiment `name` and leaves one JSON for each method and seed below `folder`.

    >>> run("digits-text", "results", methods=["Deep Sets"])  # doctest: +SKIP

    A part that has its result is not run again (remove the file to have it run again). A part that was interrupted
    starts anew, or with `resume` from its last checkpoint. `say` hears a line about each part.
    """
    chosen, folder = experiment(name), Path(folder)
    found = []
    for method, seed in _pairs(chosen, full, methods, seeds):
        record = Record.of(chosen, full, method, seed)
        if (folder / record.file).exists():
            before = Record.load(folder / record.file).parts
            record.parts = {part: done for part, done in before.items() if done["measures"]}
        for part in chosen.parts(full):
            label = " · ".join([name, method, f"seed {seed}"] + ([] if part == "all" else [part]))
            if part in record.parts:
                say(f"{label}: done before ({folder / record.file})")
                continue
            work = folder / ".work" / record.file.with_suffix("") / slug(part)
            if not resume:
                shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True, exist_ok=True)
            start, work_start = time.perf_counter(), time.process_time()
            outcome = chosen.methods[method](Trial(full, seed, work, progress), part)
            if outcome.measures:
                record.add(part, outcome, time.perf_counter() - start, time.process_time() - work_start)
                record.save(folder)
            shutil.rmtree(work)
            say(f"{label}: {record.parts[part]['seconds']:.1f} s" if outcome.measures else f"{label}: not asked")
        found.append(record)
    return found


def _pairs(chosen: Experiment, full: bool, methods: Sequence[str], seeds: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Seeds outside, so that every method has its first seed before any has its second."""
    for method in methods:
        if method not in chosen.methods:
            raise ValueError(f"{chosen.name} has no method {method!r}: it has {', '.join(chosen.methods)}.")
    for seed in seeds or chosen.seeds(full):
        for method in methods or chosen.methods:
            yield method, seed
