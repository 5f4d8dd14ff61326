"""Tables as a model needs them: which columns, whole sets all at once or in batches, and what must be true of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..sets import Sets
from .columns import Columns, Shape, shape_of
from .files import File
from .storage import TableError, arrow
from .table_sets import TableSets, identifiers, to_sets

MEMBERS = 50_000  # of a batch: 25 MB for a layer of 128 numbers


class Source:
    """Tables with the same columns, as a model needs them.

    Parameters
    ----------
    model : estimator, torch.nn.Module or None
        A fitted estimator knows its columns: they need not be given.
    files : sequence of str, Path or pyarrow.Table
        The tables.
    by : str, optional
        Column that names the set.
    features : sequence of str, optional
        Feature columns; default: those of the model, or all without another role.
    z : sequence of str, optional
        Columns known of the whole set; default: those of the model.
    target : sequence of str, optional
        Columns to learn or to compare with.

    Attributes
    ----------
    shape : Shape
        Layout of the first table.
    columns : Columns
        Roles of the columns.
    dtype : torch.dtype or None
        Precision of a plain network; None for estimators, which scale in float64 themselves.
    types : dict
        Options of :class:`File`.
    """

    def __init__(
        self,
        model: Any,
        files: Sequence[Any],
        by: str | None = None,
        *,
        features: Sequence[str] | None = None,
        z: Sequence[str] = (),
        target: Sequence[str] = (),
    ) -> None:
        chosen = list(features or map(str, getattr(model, "feature_names_in_", [])))
        context = list(z) or list(getattr(model, "context_names_in_", []))
        self.dtype = None
        if isinstance(model, torch.nn.Module):
            self.dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        self.files = [file for file in files if isinstance(file, str | Path)]
        text = _text_columns(model)
        numeric = [] if hasattr(model, "classes_") else list(target)
        self.types: dict[str, list[str]] = {"text": text}
        if model is not None:
            self.types["numbers"] = [name for name in (*context, *chosen, *numeric) if name not in text]
        self.shape: Shape = shape_of(self.open(0) if self.files else files[0])
        fitted = getattr(model, "by", None)
        by = by or (None if self.shape.nested and fitted not in self.shape.places else fitted)
        self.columns: Columns = self.shape.choose(by, chosen or None, context, list(target))
        self.types["identifiers"] = [] if by is None else [by]

    def open(self, number: int) -> File:
        """Open a file by its number."""
        return File(self.files[number], **self.types)

    def read(self) -> TableSets:
        """Read all sets of the first file; rows of a set need not be adjacent."""
        return read(self.open(0), self.shape, self.columns)

    def batches(self) -> Iterator[TableSets]:
        """Read the first file in batches of whole sets, each checked against the model."""
        for part in stream(self.open(0), self.shape, self.columns):
            yield self.check(part)

    @property
    def naming(self) -> str:
        """Name of the column that names the set in tables of predictions."""
        return self.columns.by or "set"

    def check(self, part: TableSets) -> TableSets:
        """Return the sets in the precision of the model; values that it cannot take are an error."""
        check_values(part, self.columns.features, missing=self.dtype is None)
        if self.dtype is not None:
            if not isinstance(part.X, Sets):
                raise TableError("the features of a network must be numbers: fit an estimator for other columns.")
            part = replace(part, X=part.X.to(dtype=self.dtype))
        return part


def _text_columns(model: Any) -> list[str]:
    """Columns that were text in the fit: in CSV files they are text even if they look like numbers."""
    out: list[str] = []
    for encoder in (getattr(model, "encoder_", None), getattr(model, "context_", None)):
        names, words = (getattr(encoder, name, None) or [] for name in ("category_names", "vocabularies"))
        pairs = zip(names, words, strict=False)
        out += [name for name, known in pairs if all(isinstance(word, str) for word in known)]
    return out


def check_values(sets: TableSets, features: list[str], *, missing: bool) -> None:
    """Raise a TableError for infinite features, and for missing ones unless they are allowed."""
    if not isinstance(sets.X, Sets):
        return
    values = sets.X.values.numpy()
    bad = np.isinf(values) if missing else ~np.isfinite(values)
    if not bad.any():
        return
    row, column = (int(i[0]) for i in np.nonzero(bad))
    what = "missing" if np.isnan(values[row, column]) else "infinite"
    raise TableError(
        f"{int(bad.sum())} features are missing or infinite, the first is {features[column]!r} of {sets.where(row)}, "
        f"{what}: replace them or drop these members."
    )


def read(file: File, shape: Shape, columns: Columns) -> TableSets:
    """Read all sets of a file; rows of a set need not be adjacent."""
    table = file.read(shape.inside(columns.all))
    if table.num_rows == 0:
        raise TableError(f"{file.path} has no rows, so there are no sets.")
    return to_sets(table, shape, columns)


def stream(file: File, shape: Shape, columns: Columns, members: int = MEMBERS) -> Iterator[TableSets]:
    """Read batches of whole sets, in the order of the file.

    Memory: one such batch (at least the largest set), what is read ahead, and 8 bytes per set. In a table with one
    row per member the rows of a set must be adjacent; a set that occurs again after others is an error.
    """
    batches = file.batches(shape.inside(columns.all), rows=64 if shape.nested else 8192)
    first = 0
    if shape.nested:
        tables = whole_rows(batches, members, shape.inside(columns.features[:1])[0])
    else:
        assert columns.by is not None
        tables = whole_sets(batches, members, columns.by, shape.inside([columns.by])[0], check=True)
    for table in tables:
        yield to_sets(table, shape, columns, first)
        first += len(table)
    if first == 0:
        raise TableError(f"{file.path} has no rows, so there are no sets.")


def whole_rows(batches: Iterable[Any], members: int, column: str) -> Iterator[Any]:
    """Join batches to tables whose lists in a column have about `members` entries."""
    waiting: list[Any] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch[column].flatten())
        if count >= members:
            yield arrow().Table.from_batches(waiting)
            waiting, count = [], 0
    if sum(map(len, waiting)):
        yield arrow().Table.from_batches(waiting)


def whole_sets(batches: Iterable[Any], members: int, by: str, inside: str, *, check: bool) -> Iterator[Any]:
    """Join batches to tables of about `members` rows, in which no set is cut; with `check`, no name may come again."""
    seen = SeenNames()
    waiting: list[Any] = []
    first = rows = cut = 0  # the first row that waits, how many do, and where among them the last set begins
    last: Any = None
    for batch in batches:
        if len(batch) == 0:
            continue
        names, starts = runs(identifiers(batch[inside], by, first + rows))
        old = int(rows > 0 and names[0] == last)  # the last set of the batch before continues
        again = seen.add(names[old:]) if check else None
        if again is not None:
            raise TableError(
                f"set {names[old + again].as_py()!r} occurs again in row {first + rows + int(starts[old + again])} "
                f"after other sets: to read a table in pieces, the rows of a set must be adjacent. Sort the table by "
                f"{by!r}, or predict with --scattered."
            )
        cut = rows + int(starts[-1]) if len(starts) > old else cut
        waiting.append(batch)
        rows, last = rows + len(batch), names[-1]
        if rows >= members and cut:
            table = arrow().Table.from_batches(waiting)
            yield table.slice(0, cut)
            waiting, first, rows, cut = table.slice(cut).to_batches(), first + cut, rows - cut, 0
    if rows:
        yield arrow().Table.from_batches(waiting)


def runs(column: Any) -> tuple[Any, np.ndarray]:
    """Return the value of each run of equal values, and the row where it begins."""
    codes = column.dictionary_encode()
    starts = np.concatenate([[0], np.flatnonzero(np.diff(codes.indices.to_numpy())) + 1])
    return codes.take(arrow().array(starts)).dictionary_decode(), starts


class SeenNames:
    """Names of the sets seen so far, at 8 bytes each: sorted arrays, each at least twice as long as the next."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []

    def add(self, ids: Any) -> int | None:
        """Add names of sets; returns the place of the first one that was seen before, or None."""
        if len(ids) == 0:
            return None
        if arrow().types.is_integer(ids.type):
            keys = ids.to_numpy().astype(np.int64)
        else:  # 64 bits of a hash: 10 million names collide once in 4e5
            keys = np.fromiter((hash(str(name)) for name in ids.to_pylist()), np.int64, len(ids))
        order = np.argsort(keys, kind="stable")
        new = keys[order]
        again = np.zeros(len(new), dtype=bool)
        again[1:] = new[1:] == new[:-1]
        for part in self.parts:
            again |= part[np.searchsorted(part, new).clip(max=len(part) - 1)] == new
        self.parts.append(new)
        while len(self.parts) > 1 and len(self.parts[-2]) < 2 * len(self.parts[-1]):
            self.parts[-2:] = [np.sort(np.concatenate(self.parts[-2:]), kind="stable")]
        return int(order[again].min()) if again.any() else None
