"""A model and its tables: which files, which columns, and what must be true of the values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..sets import Sets
from .arrow_types import TableError
from .columns import Columns, Shape, shape_of
from .files import File
from .reader import read, stream
from .table_sets import TableSets


def table_files(table: str | Path) -> list[Path]:
    """Return the files of a table: the file itself, or all Parquet files below a folder, sorted by name.

    Parameters
    ----------
    table : str or Path
        A file or a folder. In a folder, names that begin with ``.`` or ``_`` are skipped, as other tools do.
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
        raise TableError(f"the folder {path} holds no Parquet files.")
    return found


class Source:
    """Tables with the same columns, as a model needs them.

    Parameters
    ----------
    model : estimator, torch.nn.Module or None
        A fitted estimator knows its columns: they need not be given.
    files : sequence of Path
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
        Layout of the first file.
    columns : Columns
        Roles of the columns.
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
        self.dtype = _dtype(model)
        self.files = list(files)
        text = _text_columns(model)
        numeric = [] if hasattr(model, "classes_") else list(target)
        self._types: dict[str, list[str]] = {"text": text, "numbers": [], "identifiers": []}
        if model is not None:
            self._types["numbers"] = [name for name in (*context, *chosen, *numeric) if name not in text]
        self.shape: Shape = shape_of(self.open(0))
        by = by or self._by(getattr(model, "by", None))
        self.columns: Columns = self.shape.choose(by, chosen or None, context, list(target))
        self._types["identifiers"] = [] if by is None else [by]

    def _by(self, fitted: str | None) -> str | None:
        return None if self.shape.nested and fitted not in self.shape.places else fitted

    def open(self, number: int) -> File:
        """Open a file by its number."""
        return File(self.files[number], **self._types)

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
        """Return the sets in the precision of the model; values that it cannot take are an error.

        Parameters
        ----------
        part : TableSets
            Sets of these tables.
        """
        check_values(part, self.columns.features, missing=self.dtype is None)
        if self.dtype is not None:
            if not isinstance(part.X, Sets):
                raise TableError("the features of a network must be numbers: fit an estimator for other columns.")
            part = replace(part, X=part.X.to(dtype=self.dtype))
        return part


def check_values(sets: TableSets, features: list[str], *, missing: bool) -> None:
    """Raise a TableError for infinite features, and for missing ones unless they are allowed.

    Parameters
    ----------
    sets : TableSets
        The sets.
    features : list of str
        Names of the features.
    missing : bool
        Whether missing features are allowed, as they are for estimators.
    """
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


def _text_columns(model: Any) -> list[str]:
    """Columns that were text in the fit: in CSV files they are text even if they look like numbers."""
    out: list[str] = []
    for encoder in (getattr(model, "encoder_", None), getattr(model, "context_", None)):
        for name, words in zip(
            getattr(encoder, "category_names", None) or [], getattr(encoder, "vocabularies", []), strict=False
        ):
            if all(isinstance(word, str) for word in words):
                out.append(name)
    return out


def _dtype(model: Any) -> torch.dtype | None:
    """The precision of a plain network; estimators scale in float64 themselves."""
    if not isinstance(model, torch.nn.Module):
        return None
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
