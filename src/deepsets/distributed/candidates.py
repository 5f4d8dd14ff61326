"""Set expansion over candidates in files: the best of each table, then the best of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..expand import BaseExpander, Candidate
from ..io import arrow, numbers, shape_of
from ..io.row_groups import PART, batches, cut
from ..io.storage import list_files
from .functions import Head
from .jobs import Engine, Input, Progress, open_engine
from .model import load_model

ROWS = 1 << 16  # candidates that are scored at a time


def expand(
    model: Any,
    query: Any,
    candidates: str | Path,
    k: int = 10,
    *,
    element: str,
    features: Sequence[str] | None = None,
    exclude: Iterable[Any] = (),
    engine: str | Engine = "local",
    part_size: int = PART,
    progress: Progress | None = None,
) -> list[Candidate]:
    """Find the candidates in files that belong best to the set of a query.

    Parameters
    ----------
    model : str, Path or expander
        An expander fitted with features, or the path or URI of its model folder.
    query : list or ndarray of shape (n, D)
        Elements of the vocabulary, names of candidates, or rows of features.
    candidates : str or Path
        Path or URI of a table, or of a folder of Parquet files.
    k : int, default=10
        Number of candidates to return.
    element : str
        Column that names the candidates.
    features : sequence of str, optional
        Features in the order of the fit; by default all other columns. A column of vectors counts as several.
    exclude : iterable, default=()
        Names that are not returned, as the members of the query.
    engine, part_size, progress
        As for :func:`predict`.

    Returns
    -------
    list of Candidate
        The best first; equal scores in the order of their names.
    """
    expander = load_model(model)
    if not isinstance(expander, BaseExpander):
        raise ValueError(f"a {type(expander).__name__} does not score candidates: wanted an expander.")
    if k < 1:
        raise ValueError(f"k must be at least 1, found {k}.")
    runner, parts = open_engine(engine), cut(list_files(candidates), part_size)
    best = Best(model, k, element, features)
    head = arrow().Table.from_batches([next(batches(parts[0], None, 100))])
    best.features_of(head)  # checks the columns
    shape = shape_of(Head(head))
    columns = shape.inside([element, *features]) if features else head.column_names
    names = [] if getattr(query, "ndim", 1) == 2 else list(query)
    if names and any(expander.find(name) is None for name in names):
        best.query = _find(best, names, parts, columns)
    else:
        best.query = query
    best.skip = list({*names, *exclude})
    found = best.top(runner.collect(Input(parts, columns, best, element), progress))
    if not len(found):
        raise ValueError("no candidate is left: the files hold only members of the query and of `exclude`.")
    pairs = zip(found["element"].to_pylist(), found["score"].to_pylist(), strict=True)
    return [Candidate(name, score) for name, score in pairs]


class Best:
    """Candidates to the best of them: a table of ``element`` and ``score``."""

    def __init__(self, model: Any, k: int, element: str, features: Sequence[str] | None) -> None:
        self.model, self.k, self.element, self.features = model, k, element, features
        self.query: Any = None
        self.skip: list[Any] = []

    def __call__(self, table: Any) -> Any:
        """Score a table."""
        out = []
        for start in range(0, len(table), ROWS):
            batch = table.slice(start, ROWS).combine_chunks()
            scores = load_model(self.model).score(self.query, self.features_of(batch))
            out.append(self.top(arrow().table({"element": batch[self.element], "score": scores.astype(np.float64)})))
        return self.top(arrow().concat_tables(out))

    def top(self, found: Any) -> Any:
        """Return the k best of a table of elements and scores, without those to be skipped."""
        pa = arrow()
        skip = pa.array(self.skip, found["element"].type) if self.skip else pa.array([], found["element"].type)
        found = found.filter(pa.compute.invert(pa.compute.is_in(found["element"], value_set=skip)))
        if len(found) > self.k:
            scores = found["score"].to_numpy()
            found = found.filter(pa.array(scores >= np.partition(scores, -self.k)[-self.k]))  # ties are kept
        return found.sort_by([("score", "descending"), ("element", "ascending")]).slice(0, self.k)

    def features_of(self, table: Any) -> np.ndarray:
        """Return the features of candidates, (n, D) float32."""
        expander = load_model(self.model)
        shape = shape_of(Head(table))
        shape.check([self.element, *(self.features or [])])
        names = list(self.features or [name for name in shape.places if name != self.element])
        if len(names) != expander.n_features_in_:
            raise ValueError(
                f"the candidates have {len(names)} features ({', '.join(names[:5])}, …), but the "
                f"{type(expander).__name__} was fitted with {expander.n_features_in_}."
            )
        out = np.empty((len(table), len(names)), dtype=np.float32)
        vectors: dict[str, np.ndarray] = {}
        for i, name in enumerate(names):
            inside, place = shape.places[name]
            column = table[inside]
            if place is None:
                out[:, i] = numbers(column, inside)
                continue
            if column.null_count:
                raise ValueError(f"a candidate has no vector in column {inside!r}.")
            if inside not in vectors:
                vectors[inside] = numbers(column.combine_chunks().flatten(), inside).reshape(len(table), -1)
            out[:, i] = vectors[inside][:, place]
        return out


def _find(best: Best, query: list[Any], parts: list[Any], columns: list[str]) -> np.ndarray:
    """The features of the candidates that a query names."""
    rows: dict[Any, np.ndarray] = {}
    for part in parts:
        for batch in batches(part, columns, ROWS):
            names = batch[best.element]
            wanted = arrow().compute.is_in(names, value_set=arrow().array(query, names.type))
            chosen = arrow().Table.from_batches([batch.filter(wanted)])
            for name, row in zip(chosen[best.element].to_pylist(), best.features_of(chosen), strict=True):
                rows.setdefault(name, row)
        if len(rows) == len(set(query)):
            break
    missing = [element for element in query if element not in rows]
    if missing:
        known = len(load_model(best.model).vocabulary_)
        raise ValueError(
            f"the query holds {missing[0]!r}, which is neither in the vocabulary of {known} nor among the candidates."
        )
    return np.stack([rows[element] for element in dict.fromkeys(query)])
