"""A model and its tables brought together: which files, which columns, and what must be true of the values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .columns import Columns, Shape, shape_of
from .files import File
from .table_sets import TableSets


def table_files(table: str | Path) -> list[Path]:
    """The one file, or all Parquet files below a folder, in the order of their names.

    Names that begin with `.` or `_` are passed over, as other tools do.
    """
    path = Path(table)
    if not path.is_dir():
        return [path]
    found = sorted(
        file
        for file in path.rglob("*")
        if file.suffix in (".parquet", ".pq")
        and not any(p.startswith((".", "_")) for p in file.relative_to(path).parts)
    )
    if not found:
        raise ValueError(f"the folder {path} holds no Parquet files.")
    return found


class Source:
    """Tables with the same columns, as a model wants them.

    model: a fitted estimator, or a `DeepSet`. by, features, z: columns; what an estimator was fitted with need not be
    told. target: columns with the truth.
    """

    def __init__(
        self,
        model: Any,
        files: Sequence[Path],
        by: str | None = None,
        *,
        features: Sequence[str] | None = None,
        z: Sequence[str] = (),
        target: Sequence[str] = (),
    ) -> None:
        chosen = list(features or map(str, getattr(model, "feature_names_in_", [])))
        context = list(z) or list(getattr(model, "context_names_in_", []))
        self.tokens = bool(getattr(model, "vocabulary_", None))
        self.impute = bool(getattr(model, "impute", False))
        numbers = [] if hasattr(model, "classes_") else list(target)
        self.files = list(files)
        self.plain = [*context, *([] if self.tokens else chosen), *numbers]
        self.shape: Shape = shape_of(self.open(0))
        by = by or self._by(getattr(model, "by", None))
        self.columns: Columns = self.shape.choose(by, chosen or None, context, list(target))
        self._known: frozenset[Any] = frozenset(getattr(model, "vocabulary_", None) or ())

    def _by(self, fitted: str | None) -> str | None:
        return None if self.shape.nested and fitted not in self.shape.places else fitted

    def open(self, number: int) -> File:
        """A file by its number."""
        return File(self.files[number], self.plain)

    @property
    def naming(self) -> str:
        """The column of answers that names the set."""
        return self.columns.by or "set"

    def check(self, part: TableSets) -> TableSets:
        """The same sets, if the model can take their values."""
        check_values(
            part,
            self.columns.features,
            impute=self.impute,
            how="a model fitted with --impute would take the training mean",
        )
        if self.tokens:
            self._check_tokens(part)
        return part

    def _check_tokens(self, part: TableSets) -> None:
        if not isinstance(part.X, list):
            raise ValueError(
                f"the column {self.columns.features[0]!r} must hold strings: the model was fitted on tokens."
            )
        for tokens, name in zip(part.X, part.ids, strict=True):
            unknown = next((token for token in tokens if token not in self._known), None)
            if unknown is not None:
                raise ValueError(
                    f"set {name.as_py()!r} holds {unknown!r}, which is not among the {len(self._known)} tokens "
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
