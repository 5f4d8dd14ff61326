"""A model folder and a table brought together: which columns, which sets, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .. import store
from ..tables import Columns, File, Shape, TableSets, shape_of, stream


class Question:
    """A fitted model asked about a table, by streaming."""

    def __init__(self, model: Path, table: Path, by: str | None, z: list[str], target: list[str] | None = None) -> None:
        """target: the columns with the truth; an empty list: those of the fit."""
        self.model = store.load(model)
        if target is not None:
            target = target or list(getattr(self.model, "target_names_", []))
            if not target:
                raise ValueError(f"{model} does not say what it was fitted on: give --target.")
        features = [str(name) for name in getattr(self.model, "feature_names_in_", [])]
        z = z or list(getattr(self.model, "context_names_in_", []))
        self.tokens = bool(getattr(self.model, "vocabulary_", None))
        plain = [*z, *([] if self.tokens else features)]
        if target and not hasattr(self.model, "classes_"):
            plain += target
        self.file = File(table, plain)
        self.shape: Shape = shape_of(self.file)
        by = by or self._by()
        self.columns: Columns = self.shape.choose(by, features or None, z, target or [])

    def _by(self) -> str | None:
        by = self.model.by
        return None if self.shape.nested and by not in self.shape.places else by

    @property
    def rows(self) -> int | None:
        """Rows of the table, where they are known without reading it."""
        return self.file.rows

    def parts(self) -> Iterator[TableSets]:
        """Batches of whole sets, checked."""
        for part in stream(self.file, self.shape, self.columns):
            check_values(
                part,
                self.columns.features,
                impute=self.model.impute,
                how="a model fitted with --impute would take the training mean",
            )
            if self.tokens:
                self._check_tokens(part)
            yield part

    def _check_tokens(self, part: TableSets) -> None:
        if not isinstance(part.X, list):
            raise ValueError(
                f"the column {self.columns.features[0]!r} must hold strings: the model was fitted on tokens."
            )
        known = set(self.model.vocabulary_)
        for tokens, name in zip(part.X, part.ids, strict=True):
            unknown = next((token for token in tokens if token not in known), None)
            if unknown is not None:
                raise ValueError(
                    f"set {name.as_py()!r} holds {unknown!r}, which is not among the {len(known)} tokens "
                    "the model knows."
                )


def check_values(sets: TableSets, features: list[str], *, impute: bool, how: str) -> None:
    """Infinite features are refused, and missing ones where they are not imputed; with the names of the table."""
    if isinstance(sets.X, list):
        return
    values = sets.X.values.numpy()
    bad = np.isinf(values) if impute else ~np.isfinite(values)
    if not bad.any():
        return
    row, column = (int(i[0]) for i in np.nonzero(bad))
    what, hint = ("missing", f"fill them in; {how}") if np.isnan(values[row, column]) else ("infinite", "mend them")
    raise ValueError(
        f"{int(bad.sum())} features are missing or infinite, the first is {features[column]!r} of {sets.where(row)}, "
        f"{what}: {hint}."
    )


def naming(question: Question, part: TableSets, per_member: bool) -> dict[str, Any]:
    """The first columns of an answer: the set, and for answers of members the place in it, from 0."""
    by = question.columns.by or "set"
    if not per_member:
        return {by: part.ids}
    import pyarrow as pa

    numbers = np.repeat(np.arange(len(part)), part.sizes)
    starts = np.repeat(np.cumsum(part.sizes) - part.sizes, part.sizes)
    return {by: part.ids.take(pa.array(numbers)), "member": np.arange(len(numbers)) - starts}
