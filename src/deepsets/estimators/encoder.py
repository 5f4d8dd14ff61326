"""Learned encoding of columns: numbers to deviations, categories to codes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from .columns import Columns, UnseenCategories
from .scale import Scale
from .state import are_strings

MOST_RANKED = 500  # columns up to which a network sees ranks beside deviations
UNKNOWN = 0  # code of categories and tokens that were not seen in fit


class ColumnEncoder:
    """Encode columns of numbers and categories as learned from the training data.

    A category that was not seen in `fit` gets the code 0, "unknown"; a missing one is a category of its own.
    """

    def __init__(self) -> None:
        self.scale = Scale(0)
        self.gaps = np.zeros(0, dtype=np.int64)  # number columns with missing values in fit; each gets an indicator
        self.vocabularies: list[list[Any]] = []  # categories of each column; code c is vocabulary[c - 1]
        self.frequencies: list[np.ndarray] = []  # how often each category occurs in the training data
        self.number_names: list[str] | None = None
        self.category_names: list[str] | None = None
        self.schema: list[tuple[str, str]] | None = None
        self._lookups: list[dict[Any, int]] | None = None

    @property
    def numbers(self) -> int:
        """Number columns."""
        return len(self.scale.mean)

    def learn(self, columns: Columns) -> ColumnEncoder:
        """Learn scale and vocabularies."""
        self.scale = Scale(columns.numbers.shape[1])
        self.scale.learn(torch.from_numpy(columns.numbers))
        self.gaps = np.flatnonzero(np.isnan(columns.numbers).any(0))
        self.number_names, self.category_names = columns.number_names, columns.category_names
        self.schema = columns.schema
        self.vocabularies, self.frequencies, self._lookups = [], [], None
        for column in columns.categories:
            counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.values))
            used = np.flatnonzero(counts)
            vocabulary, frequency = [column.values[i] for i in used], counts[used]
            if (column.codes < 0).any():
                vocabulary, frequency = [*vocabulary, None], np.append(frequency, (column.codes < 0).sum())
            self.vocabularies.append(vocabulary)
            self.frequencies.append(frequency)
        return self

    def deviations(self, columns: Columns) -> np.ndarray:
        """(N, D) numbers as deviations from the training mean; NaN where missing."""
        return self.scale.deviations(torch.from_numpy(columns.numbers)).numpy()

    def views(self, columns: Columns) -> torch.Tensor:
        """(N, F) float32, what a network sees of the numbers: both views of `Scale`, and indicators of gaps."""
        numbers = torch.from_numpy(columns.numbers)
        views = self.scale(numbers)
        if self.numbers > MOST_RANKED:
            views = views[:, : self.numbers]
        return torch.cat([views, numbers[:, self.gaps].isnan().float()], dim=1)

    @property
    def view_width(self) -> int:
        """Columns of `views`."""
        return self.numbers * (1 if self.numbers > MOST_RANKED else 2) + len(self.gaps)

    def codes(self, columns: Columns, what: str = "X") -> np.ndarray:
        """(N, C) codes of the categories; unknown ones are counted and reported in one warning."""
        if not columns.categories:
            return np.zeros((len(columns), 0), dtype=np.int64)
        if self._lookups is None:
            self._lookups = [{v: i for i, v in enumerate(words, 1)} for words in self.vocabularies]
        out = np.empty((len(columns), len(columns.categories)), dtype=np.int64)
        unseen = {}
        for j, (column, lookup) in enumerate(zip(columns.categories, self._lookups, strict=True)):
            table = np.array([*(lookup.get(v, UNKNOWN) for v in column.values), lookup.get(None, UNKNOWN)], np.int64)
            out[:, j] = table[column.codes]
            new = out[:, j] == UNKNOWN
            if new.any():
                name = (self.category_names or [])[j]
                example = next((v for v, code in zip(column.values, table[:-1], strict=True) if code == UNKNOWN), None)
                unseen[name] = (int(new.sum()), len(new), example)
        if unseen:
            warnings.warn(UnseenCategories(what, unseen), stacklevel=2)
        return out

    def check(self, columns: Columns, owner: str) -> None:
        """Refuse columns that differ from those of `fit`."""
        if len(columns.categories) != len(self.vocabularies):
            found, wanted = ("tokens", "numbers") if columns.categories else ("numbers", "tokens")
            if wanted == "numbers":
                wanted = f"{self.numbers} features"
            raise ValueError(f"X holds {found}, but {owner} was fitted with {wanted}.")
        if columns.numbers.shape[1] != self.numbers:
            raise ValueError(
                f"X has members with {columns.numbers.shape[1]} features, but {owner} was fitted with {self.numbers}."
            )

    def kinds(self) -> dict[str, str] | None:
        """The kind of each named column."""
        return None if self.schema is None else dict(self.schema)

    # -------------------------------------------------------------------------------------------------- state

    def get_state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Tensors and JSON-able facts that rebuild the encoder."""
        tensors = {name: value.clone() for name, value in self.scale.state_dict().items()}
        tensors["gaps"] = torch.from_numpy(self.gaps)
        for j, frequency in enumerate(self.frequencies):
            tensors[f"frequency.{j}"] = torch.from_numpy(frequency.astype(np.int64))
        facts = {
            "vocabularies": self.vocabularies,
            "number_names": self.number_names,
            "category_names": self.category_names,
            "schema": None if self.schema is None else [list(pair) for pair in self.schema],
        }
        return tensors, facts

    @classmethod
    def from_state(cls, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> ColumnEncoder:
        """Rebuild an encoder; ValueError where the parts do not fit together."""
        new = cls()
        statistics = {name: _vector(tensors, name) for name in ("mean", "inverse", "knots")}
        count = len(statistics["mean"])
        if statistics["inverse"].shape != (count,) or statistics["knots"].shape != (count, Scale.KNOTS):
            raise ValueError("the statistics of the features do not fit together.")
        new.scale = Scale(count)
        new.scale.load_state_dict(statistics)
        new.gaps = _vector(tensors, "gaps", torch.int64).numpy()
        if len(new.gaps) and (new.gaps.min() < 0 or new.gaps.max() >= count):
            raise ValueError("the columns with gaps do not exist.")
        words = facts.get("vocabularies")
        if not isinstance(words, list) or not all(isinstance(v, list) for v in words):
            raise ValueError("the vocabularies are not lists.")
        if any(not isinstance(v, str | int | float | None) for vocabulary in words for v in vocabulary):
            raise ValueError("a vocabulary holds an entry that is neither text nor number.")
        new.vocabularies = words
        new.frequencies = [_vector(tensors, f"frequency.{j}", torch.int64).numpy() for j in range(len(words))]
        if [len(f) for f in new.frequencies] != [len(v) for v in words]:
            raise ValueError("vocabularies and frequencies differ in length.")
        new.category_names, new.number_names = facts.get("category_names"), facts.get("number_names")
        for names, wanted in ((new.category_names, len(words)), (new.number_names, count)):
            if names is not None and not are_strings(names, wanted):
                raise ValueError(f"the column names are not {wanted} strings.")
        if words and new.category_names is None:
            raise ValueError("category columns have no names.")
        schema = facts.get("schema")
        if schema is not None:
            if not isinstance(schema, list) or not all(are_strings(pair, 2) for pair in schema):
                raise ValueError("the schema is not a list of names and kinds.")
            new.schema = [(name, kind) for name, kind in schema]
        return new


def _vector(tensors: dict[str, torch.Tensor], name: str, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    if name not in tensors:
        raise ValueError(f"the tensor {name!r} is missing.")
    tensor = tensors[name]
    if tensor.dtype != dtype or tensor.ndim not in (1, 2):
        raise ValueError(f"{name!r} has shape {tuple(tensor.shape)} of {tensor.dtype}, wanted {dtype}.")
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        raise ValueError(f"{name!r} holds numbers that are not finite.")
    return tensor


def looks_like_identifier(values: np.ndarray, name: str) -> bool:
    """Whether whole numbers differ in almost every row and are consecutive or named like an identifier."""
    there = np.unique(values[~np.isnan(values)])
    if len(there) < 50 or len(there) < 0.95 * np.count_nonzero(~np.isnan(values)) or (there != np.round(there)).any():
        return False
    consecutive = there[-1] - there[0] + 1 == len(there)
    return bool(consecutive or name.lower().rsplit("_")[-1] in ("id", "no", "nr", "number", "key", "index"))
