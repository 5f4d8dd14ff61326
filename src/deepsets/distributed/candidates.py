"""Set expansion over candidates in files: the best of each part, then the best of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..expand import BaseExpander, Candidate, top_k
from ..io import File, numbers, shape_of
from ..io.files import arrow
from ..io.source import table_files
from .engines import Engine
from .partition import PART, Part, are_few, cut_files, record_batches
from .state_codec import load_model

ROWS = 1 << 16  # candidates that are scored at a time

Found = list[tuple[float, int, Any]]  # score, row over all files, name


def expand(
    model: Any,
    query: Any,
    candidates: str | Path,
    k: int = 10,
    *,
    element: str,
    features: Sequence[str] | None = None,
    exclude: Iterable[Any] = (),
    engine: Engine = Engine(),  # noqa: B008  # it cannot change
    part: int = PART,
) -> list[Candidate]:
    """The k candidates that go best with a query, best first; ties in the order of the files.

    model:      a folder of an expander, or an expander, that can score rows of features.
    query:      elements of its vocabulary, or names of candidates, or rows of features (n, D).
    candidates: a table, or a folder of Parquet files: `element` is the column of their names; `features` their
                features in the order of the fit (default: all other columns; vectors in one column will do).

    Members of the query and of `exclude` are no candidates. Memory is that of a few batches, whatever the files hold.
    """
    expander = load_model(model)
    if not isinstance(expander, BaseExpander):
        raise ValueError(f"candidates are scored by an expander, found a {type(expander).__name__}.")
    if k < 1:
        raise ValueError(f"k must be at least 1, found {k}.")
    table = Candidates(table_files(candidates), element, features, expander)
    names = [] if getattr(query, "ndim", 1) == 2 else list(query)
    asked = query if not names else _known(expander, names, table, part)
    skip = {*names, *exclude}
    given = model if isinstance(model, str | Path) else expander
    with engine.open() as crew:
        parts = cut_files(table.files, part)
        each = crew.run(Best, (given, table, asked, k, skip), parts, are_few(parts))
        best = [one for found in each for one in found]
    best.sort(key=lambda one: (-one[0], one[1]))
    if not best:
        raise ValueError("no candidate is left: the files hold none but those of the query and `exclude`.")
    return [Candidate(name, score) for score, _, name in best[:k]]


class Candidates:
    """Where candidates are found: files, the column of their names, those of their features."""

    def __init__(self, files: list[Path], element: str, features: Sequence[str] | None, expander: BaseExpander) -> None:
        self.files, self.element = files, element
        file = self.open(0)
        self.shape = shape_of(file)
        self.shape.check([element, *(features or [])])
        self.features = list(features or [name for name in self.shape.places if name != element])
        if len(self.features) != expander.n_features_in_:
            raise ValueError(
                f"the candidates have {len(self.features)} features ({', '.join(self.features[:5])}, …), but the "
                f"{type(expander).__name__} was fitted with {expander.n_features_in_}."
            )

    def open(self, number: int) -> File:
        """A file by its number."""
        return File(self.files[number])

    @property
    def inside(self) -> list[str]:
        """The columns that are read."""
        return self.shape.inside([self.element, *self.features])

    def rows(self, batch: Any) -> np.ndarray:
        """(n, D) float32."""
        out = np.empty((len(batch), len(self.features)), dtype=np.float32)
        held: dict[str, list[tuple[int, int | None]]] = {}  # a column of vectors is read as a whole
        for i, name in enumerate(self.features):
            inside, place = self.shape.places[name]
            held.setdefault(inside, []).append((i, place))
        for inside, features in held.items():
            column = batch[inside]
            if features[0][1] is None:
                out[:, features[0][0]] = numbers(column, inside)
                continue
            if column.null_count:
                raise ValueError(f"a candidate has no vector in the column {inside!r}.")
            vectors = numbers(column.flatten(), inside).reshape(len(batch), -1)
            for i, place in features:
                out[:, i] = vectors[:, place]
        return out


class Best:
    """A worker: the k best candidates of a part."""

    def __init__(self, model: Any, table: Candidates, query: Any, k: int, skip: set[Any]) -> None:
        self.expander, self.table, self.query, self.k, self.skip = load_model(model), table, query, k, skip

    def __call__(self, part: Part) -> Found:
        pa = arrow()
        best: Found = []
        row = part.first
        for batch in record_batches(self.table, part, self.table.inside, ROWS):
            names = batch[self.table.element]
            skipped = pa.compute.is_in(names, value_set=pa.array(list(self.skip), names.type))
            left = ~skipped.to_numpy(zero_copy_only=False)
            scores = self.expander.score(self.query, self.table.rows(batch))
            places = top_k(scores, self.k, left)
            if len(best) == self.k:
                places = places[scores[places] > best[-1][0]]  # a later row loses a tie
            best += [(float(scores[i]), row + int(i), names[int(i)].as_py()) for i in places]
            best = sorted(best, key=lambda one: (-one[0], one[1]))[: self.k]
            row += len(batch)
        return best


def _known(expander: BaseExpander, query: list[Any], table: Candidates, part: int) -> Any:
    """The query as it is where the expander knows it; otherwise the rows of the candidates with these names."""
    if all(expander.find(element) is not None for element in query):
        return query
    pa = arrow()
    rows: dict[Any, np.ndarray] = {}
    for piece in cut_files(table.files, part):
        for batch in record_batches(table, piece, table.inside, ROWS):
            wanted = pa.compute.is_in(batch[table.element], value_set=pa.array(query, batch[table.element].type))
            chosen = batch.filter(wanted)
            for name, row in zip(chosen[table.element].to_pylist(), table.rows(chosen), strict=True):
                rows.setdefault(name, row)
        if len(rows) == len(set(query)):
            break
    missing = [element for element in query if element not in rows]
    if missing:
        raise ValueError(
            f"the query holds {missing[0]!r}, which is neither in the vocabulary of {len(expander.vocabulary_)} nor "
            "among the candidates."
        )
    return np.stack([rows[element] for element in dict.fromkeys(query)])
