"""Set expansion over candidates in files: the best of each table, then the best of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..io.reader import Source
from ..io.row_groups import PART, cut
from ..io.storage import arrow, list_files
from ..io.table_sets import to_sets
from ..train.process import release_memory
from .functions import load_model
from .jobs import Engine, Input, Progress, open_engine

if TYPE_CHECKING:
    from ..expand import Candidate

ROWS, BYTES = 1 << 12, 1 << 20  # candidates that are scored, and bytes that are read, at a time


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
    from ..expand import BaseExpander, Candidate

    expander = load_model(model)
    if not isinstance(expander, BaseExpander):
        raise ValueError(f"a {type(expander).__name__} does not score candidates: wanted an expander.")
    if k < 1:
        raise ValueError(f"k must be at least 1, found {k}.")
    runner, parts = open_engine(engine), cut(list_files(candidates), part_size)
    rows = Source(None, [parts[0].file], element, features=features)
    found = rows.columns.features
    if len(found) != expander.n_features_in_:
        raise ValueError(
            f"the candidates have {len(found)} features ({', '.join(found[:5])}, …), but the "
            f"{type(expander).__name__} was fitted with {expander.n_features_in_}."
        )
    input = Input(parts, rows.shape.inside(rows.columns.all), None, element, types=rows.types, size=BYTES)
    names = [] if getattr(query, "ndim", 1) == 2 else list(query)
    if any(expander.find(name) is None for name in names):
        named, values = _features(rows, runner.collect(input._replace(function=partial(_named, element, names))))
        where = {name: row for row, name in reversed(list(enumerate(named.to_pylist())))}
        missing = [name for name in names if name not in where]
        if missing:
            raise ValueError(
                f"the query holds {missing[0]!r}, which is neither in the vocabulary of {len(expander.vocabulary_)} "
                "nor among the candidates."
            )
        query = values[[where[name] for name in dict.fromkeys(names)]]
    top = partial(_top, k, list({*names, *exclude}))
    best = top(runner.collect(input._replace(function=partial(_best, model, rows, query, top)), progress))
    if not len(best):
        raise ValueError("no candidate is left: the files hold only members of the query and of `exclude`.")
    return [Candidate(row["element"], row["score"]) for row in best.to_pylist()]


def _best(model: Any, rows: Source, query: Any, top: Any, table: Any) -> Any:
    """Candidates to the best of them: a table of ``element`` and ``score``."""
    out = []
    for start in range(0, len(table), ROWS):
        names, values = _features(rows, table.slice(start, ROWS))
        scores = load_model(model).score(query, values)
        out.append(top(arrow().table({"element": names, "score": scores.astype(np.float64)})))
    release_memory()  # the allocator would keep more with every table
    return top(arrow().concat_tables(out))


def _named(element: str, names: list[Any], table: Any) -> Any:
    """The candidates with some names."""
    return table.filter(arrow().compute.is_in(table[element], value_set=arrow().array(names, table[element].type)))


def _features(rows: Source, table: Any) -> tuple[Any, np.ndarray]:
    """Names and features (n, D) of candidates."""
    sets = rows.check(to_sets(table, rows.shape, rows.columns))
    return sets.ids.take(arrow().array(np.repeat(np.arange(len(sets)), sets.sizes))), sets.X.values.numpy()


def _top(k: int, skip: list[Any], found: Any) -> Any:
    """The k best of a table of elements and scores, without those to be skipped."""
    compute, names = arrow().compute, found["element"]
    found = found.filter(compute.invert(compute.is_in(names, value_set=arrow().array(skip, names.type))))
    if len(found) > k:
        scores = found["score"].to_numpy()
        found = found.filter(arrow().array(scores >= np.partition(scores, -k)[-k]))  # ties are kept
    return found.sort_by([("score", "descending"), ("element", "ascending")]).slice(0, k)
