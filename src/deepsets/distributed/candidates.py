"""Set expansion over candidates in files: the best of each table, then the best of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..io.files import File
from ..io.reader import Source
from ..io.row_groups import PART, READ, Part, cut
from ..io.storage import arrow, list_files
from ..io.table_sets import to_sets
from .jobs import Engine, Input, Progress, open_engine
from .model import load_model

if TYPE_CHECKING:
    from ..expand import Candidate

ROWS = 1 << 14  # candidates that are scored at a time


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
    best = Best(model, k, Source(None, [parts[0].file], element, features=features))
    names = [] if getattr(query, "ndim", 1) == 2 else list(query)
    best.query, best.skip = query, list({*names, *exclude})
    if any(expander.find(name) is None for name in names):
        best.query = _find(best, names, parts)
    found = best.top(runner.collect(Input(parts, best.columns, best, element, types=best.rows.types), progress))
    if not len(found):
        raise ValueError("no candidate is left: the files hold only members of the query and of `exclude`.")
    pairs = zip(found["element"].to_pylist(), found["score"].to_pylist(), strict=True)
    return [Candidate(name, score) for name, score in pairs]


class Best:
    """Candidates to the best of them: a table of ``element`` and ``score``."""

    def __init__(self, model: Any, k: int, rows: Source) -> None:
        self.model, self.k, self.rows = model, k, rows
        self.columns = rows.shape.inside(rows.columns.all)
        self.query: Any = None
        self.skip: list[Any] = []
        count, expander = len(rows.columns.features), load_model(model)
        if count != expander.n_features_in_:
            raise ValueError(
                f"the candidates have {count} features ({', '.join(rows.columns.features[:5])}, …), but the "
                f"{type(expander).__name__} was fitted with {expander.n_features_in_}."
            )

    def __call__(self, table: Any) -> Any:
        """Score a table."""
        out = []
        for start in range(0, len(table), ROWS):
            names, values = self.features(table.slice(start, ROWS))
            scores = load_model(self.model).score(self.query, values)
            out.append(self.top(arrow().table({"element": names, "score": scores.astype(np.float64)})))
        return self.top(arrow().concat_tables(out))

    def features(self, table: Any) -> tuple[Any, np.ndarray]:
        """Return the names and the features (n, D) of candidates."""
        sets = self.rows.check(to_sets(table, self.rows.shape, self.rows.columns))
        return sets.ids.take(arrow().array(np.repeat(np.arange(len(sets)), sets.sizes))), sets.X.values.numpy()

    def top(self, found: Any) -> Any:
        """Return the k best of a table of elements and scores, without those to be skipped."""
        pa = arrow()
        skip = pa.array(self.skip, found["element"].type)
        found = found.filter(pa.compute.invert(pa.compute.is_in(found["element"], value_set=skip)))
        if len(found) > self.k:
            scores = found["score"].to_numpy()
            found = found.filter(pa.array(scores >= np.partition(scores, -self.k)[-self.k]))  # ties are kept
        return found.sort_by([("score", "descending"), ("element", "ascending")]).slice(0, self.k)


def _find(best: Best, query: list[Any], parts: list[Part]) -> np.ndarray:
    """The features of the candidates that a query names."""
    rows: dict[Any, np.ndarray] = {}
    element = best.rows.columns.by
    for batch in (b for part in parts for b in File(part.file).batches(best.columns, READ, part.groups)):
        wanted = arrow().compute.is_in(batch[element], value_set=arrow().array(query, batch[element].type))
        if arrow().compute.any(wanted).as_py():
            names, values = best.features(arrow().Table.from_batches([batch.filter(wanted)]))
            for name, row in zip(names.to_pylist(), values, strict=True):
                rows.setdefault(name, row)
        if len(rows) == len(set(query)):
            break
    missing = [element for element in query if element not in rows]
    if missing:
        raise ValueError(
            f"the query holds {missing[0]!r}, which is neither in the vocabulary of "
            f"{len(load_model(best.model).vocabulary_)} nor among the candidates."
        )
    return np.stack([rows[element] for element in dict.fromkeys(query)])
