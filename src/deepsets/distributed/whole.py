"""Answers for tables of whole sets, a file at a time: for models without states, such as those of members."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..io import TableSets, stream
from ..io.files import arrow
from ..io.predictions import prediction_columns
from ..io.reader import SeenNames
from ..io.source import Source
from .engines import Engine
from .partition import are_few, cut
from ..io import model_identity
from .state_codec import load_model
from .work import OUT, Work, finished, part_path, stamps, write_counts


def predict_whole(
    model: Any,
    source: Source,
    output: Path,
    engine: Engine,
    *,
    overwrite: bool,
    progress: Callable[[int], None] | None,
) -> dict[str, Any]:
    """Every file is a part; its sets are whole, and their rows neighbours."""
    start = time.perf_counter()
    parts = cut(source)
    firsts = {part.file: part.first for part in reversed(parts)}  # a file without rows has no part
    crew = engine.open()
    identity = {"columns": source.columns._asdict(), "tables": stamps(source.files)}
    work = Work(output, identity | {"model": model_identity(load_model(model))}, overwrite=overwrite)
    items = list(firsts.items())[::-1]
    numbers = work.missing("out", len(items))
    with work, crew:
        todo = [(n, *items[n]) for n in numbers]
        for rows in crew.run(Whole, (model, source, work.folder), todo, are_few(parts)):
            if progress is not None:
                progress(rows)
        outs = [(source.files[file], part_path(work.folder, "out", n)) for n, (file, _) in enumerate(items)]
        _check_once(source, outs)
        facts = work.assemble(len(items))
    facts |= {"parts": len(items), "found_done": len(items) - len(numbers)}
    return facts | {"seconds": round(time.perf_counter() - start, 3)}


class Whole:
    """A worker: the answers for all sets of a file."""

    def __init__(self, model: Any, source: Source, folder: Path) -> None:
        self.model, self.source, self.folder = load_model(model), source, folder

    def __call__(self, item: tuple[int, int, int]) -> int:
        number, file, first = item
        path = part_path(self.folder, "out", number)
        if path.is_dir():
            return 0
        source, sets, rows, sink = self.source, 0, 0, None
        with finished(path) as new:
            for part in stream(source.open(file), source.shape, source.columns):
                named = part
                if source.columns.by is None:  # sets are named by their row, over all files
                    ids = arrow().compute.add(part.ids, first)
                    named = TableSets(part.X, part.sizes, ids, part.z, part.targets, part.per_set)
                table = arrow().table(prediction_columns(self.model, source.check(named), source.naming))
                sink = sink or arrow().parquet.ParquetWriter(new / OUT, table.schema)
                sink.write_table(table)
                sets, rows = sets + len(part), rows + int(part.sizes.sum())
            assert sink is not None
            sink.close()
            write_counts(new, sets, rows)
        return rows


def _check_once(source: Source, parts: list[tuple[Path, Path]]) -> None:
    """A set whose rows stand in several files had several answers: that is an error."""
    seen = SeenNames(source.naming)
    for file, folder in parts:
        if (folder / OUT).exists():
            names = arrow().parquet.read_table(folder / OUT, columns=[source.naming])[source.naming].unique()
            try:
                seen.add(names, np.arange(len(names)))
            except ValueError as error:
                what = str(error).split(" occurs again")[0]
                raise ValueError(
                    f"{what} has rows in {file} and in a file before it: this model needs all members of a set at "
                    "once, so the rows of a set must stand in one file."
                ) from None
