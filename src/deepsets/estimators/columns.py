"""Columns of a table as numbers and categories, whatever library holds them."""

from __future__ import annotations

import datetime
import decimal
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..sets.tables import is_missing


class UnseenCategories(UserWarning):
    """Categories that were not seen in fit, counted by column."""

    def __init__(self, what: str, columns: dict[str, tuple[int, int, Any]]) -> None:
        self.what, self.columns = what, columns
        reports = [
            f"{unseen} of {total} values in {name!r}" + ("" if example is None else f", for example {example!r}")
            for name, (unseen, total, example) in columns.items()
        ]
        super().__init__(
            f"{what} holds categories that were not seen in fit: {'; '.join(reports)}. They are read as unknown."
        )


class Category(NamedTuple):
    """A column of categories: `codes` (N,) point into `values`; −1 is a missing value."""

    codes: np.ndarray
    values: list[Any]

    def take(self, rows: np.ndarray) -> Category:
        """Select rows."""
        return Category(self.codes[rows], self.values)


@dataclass(frozen=True)
class Columns:
    """Columns side by side: numbers as one matrix, categories one by one.

    Booleans are numbers; a date and time becomes three. Plain arrays have no names.
    """

    numbers: np.ndarray  # (N, D), NaN where a value is missing
    categories: list[Category]
    number_names: list[str] | None = None
    category_names: list[str] | None = None
    schema: list[tuple[str, str]] | None = None  # (name, "number", "category", "datetime" or "empty") as given

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: np.ndarray) -> Columns:
        """Select rows."""
        return replace(self, numbers=self.numbers[rows], categories=[c.take(rows) for c in self.categories])

    def given_names(self) -> list[str]:
        """Names of the columns as they were given; x0, x1, … for plain arrays."""
        if self.schema is None:
            return [f"x{j}" for j in range(self.numbers.shape[1])]
        return [name for name, _ in self.schema]

    def permuted(self, name: str, order: np.ndarray) -> Columns:
        """The same, with all that was read from one column in another order."""
        names = self.given_names() if self.schema is None else self.number_names or []
        places = [j for j, other in enumerate(names) if other == name or other.startswith(f"{name}:")]
        numbers = self.numbers.copy()
        numbers[:, places] = numbers[order][:, places]
        pairs = zip(self.categories, self.category_names or [], strict=True)
        return replace(self, numbers=numbers, categories=[c.take(order) if n == name else c for c, n in pairs])


def as_table(X: Any) -> Any:
    """A table of any library as a pandas or Arrow table; None where X is not a table."""
    if type(X).__name__ == "LazyFrame":  # polars
        X = X.collect()
    if isinstance(X, np.ndarray) or not (hasattr(X, "column_names") or hasattr(X, "columns")):
        return None
    if hasattr(X, "iloc") or hasattr(X, "to_pylist"):  # pandas, Arrow
        return X
    import pyarrow as pa

    if hasattr(X, "with_format"):  # Hugging Face data sets
        return X.with_format("arrow")[:]
    return X.to_arrow() if hasattr(X, "to_arrow") else pa.table(X)  # polars; DuckDB and other Arrow streams


def column_names(table: Any) -> list[Any]:
    """Names of the columns of a pandas or Arrow table."""
    return list(table.column_names) if hasattr(table, "column_names") else list(table.columns)


def plain_column(table: Any, name: Any) -> np.ndarray:
    """One column as an array, for targets and set names."""
    column = table[name]
    if hasattr(column, "to_pylist"):  # Arrow
        column = one_array(column)
        if column.null_count == 0 and not _is_arrow_text(column):
            return np.asarray(column.to_numpy(zero_copy_only=False))
        return as_objects(column.to_pylist())
    return np.asarray(column.to_numpy())


def read_columns(table: Any, names: Sequence[Any], kinds: dict[str, str] | None = None) -> Columns:
    """Read columns of a table, in the order of `names`; a column that does not fit its kind in `fit` is an error."""
    known = column_names(table)
    for name in names:
        if name not in known:
            raise ValueError(f"the table has no column {name!r}; it has: {', '.join(map(str, known))}.")
    each = [(str(name), *_read_column(table[name], str(name), (kinds or {}).get(str(name)))) for name in names]
    return join_columns(each, int(table.num_rows) if hasattr(table, "num_rows") else len(table))


def join_columns(each: list[tuple[str, str, Category | list[np.ndarray]]], count: int) -> Columns:
    """Columns that were read one by one (name, kind, content), side by side."""
    numbers: list[np.ndarray] = []
    number_names: list[str] = []
    categories = {name: values for name, _, values in each if isinstance(values, Category)}
    for name, kind, values in each:
        if not isinstance(values, Category):
            numbers += values
            number_names += [name, f"{name}:hour", f"{name}:weekday"] if kind == "datetime" else [name]
    matrix = np.stack(numbers, axis=1) if numbers else np.zeros((count, 0))
    schema = [(name, kind) for name, kind, _ in each]
    return Columns(matrix, list(categories.values()), number_names, list(categories), schema)


def from_values(values: np.ndarray, name: str, wanted: str | None = None) -> tuple[str, Category | list[np.ndarray]]:
    """Kind and content of a column given as an array; what `fit` saw no value of is read as missing, with a warning."""
    if wanted == "empty":
        there = values[~is_missing(values)]
        if len(there):
            warnings.warn(UnseenCategories("X", {name: (len(there), len(values), there[0])}), stacklevel=2)
        return "empty", [np.full(len(values), np.nan)]
    values = np.ma.filled(values.astype(float), np.nan) if isinstance(values, np.ma.MaskedArray) else values
    kind: str = values.dtype.kind
    if kind in "OUS":
        values, kind = _sort_objects(values)
    if kind == "category" and wanted in ("number", "datetime"):
        return wanted, _from_text(values, name, wanted)
    if kind == "category" or wanted == "category":
        return "category", factorize(values)
    if kind == "c":
        raise ValueError(f"column {name!r} holds complex numbers: give the real and the imaginary part as two columns.")
    if kind == "M":
        return "datetime", _datetime(values)
    if kind == "m":
        values = np.where(np.isnat(values), np.nan, values.astype("timedelta64[ns]").astype(np.int64) / 1e9)
    numbers = values.astype(np.float64)
    if wanted == "datetime":  # a column of missing values has no type of its own
        if not np.isnan(numbers).all():
            raise ValueError(f"column {name!r} held dates in fit, but numbers here, such as {numbers[0]!r}.")
        return "datetime", [numbers, numbers, numbers]
    infinite = np.isinf(numbers)
    if infinite.any():
        raise ValueError(
            f"column {name!r} is infinite in row {int(infinite.argmax())}: "
            "replace it by a number, or by NaN where the value is missing."
        )
    empty = wanted is None and len(numbers) > 0 and np.isnan(numbers).all()
    return "empty" if empty else "number", [numbers]


def factorize(values: np.ndarray) -> Category:
    """Codes by order of appearance; values that are equal in Python are one category."""
    missing = is_missing(values)
    if values.dtype.kind == "O":
        seen: dict[Any, int] = {}
        try:
            codes = [-1 if gone else seen.setdefault(v, len(seen)) for v, gone in zip(values, missing, strict=True)]
        except TypeError:
            bad = next(v for v in values if isinstance(v, list | dict | set | np.ndarray))
            raise ValueError(
                f"a category must be a string, a number or a boolean, found a {type(bad).__name__}: {str(bad)[:60]!r}."
            ) from None
        return Category(np.array(codes, dtype=np.int64).reshape(len(values)), [_plain(v) for v in seen])
    found, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return Category(np.where(missing, -1, rank[inverse]), found[order].tolist())


# --------------------------------------------------------------------------------------------------- one column


def _read_column(column: Any, name: str, wanted: str | None) -> tuple[str, Category | list[np.ndarray]]:
    if wanted == "empty":
        return from_values(
            as_objects(column.to_pylist() if hasattr(column, "to_pylist") else list(column)), name, wanted
        )
    if hasattr(column, "to_pylist"):
        return _read_arrow(column, name, wanted)
    if hasattr(column, "cat") and wanted in (None, "category"):  # pandas categories
        values = np.asarray(column.cat.categories)
        return "category", Category(np.asarray(column.cat.codes, dtype=np.int64), [_plain(v) for v in values.tolist()])
    if getattr(getattr(column, "dtype", None), "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    if getattr(column, "ndim", 1) != 1:
        raise ValueError(f"the table has several columns named {name!r}: rename them.")
    dtype = getattr(column, "dtype", None)
    if dtype is not None and not isinstance(dtype, np.dtype):  # pandas' nullable types
        kind = getattr(dtype, "kind", "O")
        if kind in "iufb":
            return from_values(column.to_numpy(dtype=np.float64, na_value=np.nan), name, wanted)
        return from_values(np.asarray(column.to_numpy(dtype=object, na_value=None)), name, wanted)
    return from_values(np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column), name, wanted)


def one_array(column: Any) -> Any:
    """The chunks of an Arrow column as one array."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def _read_arrow(column: Any, name: str, wanted: str | None) -> tuple[str, Category | list[np.ndarray]]:
    import pyarrow as pa

    column = one_array(column)
    kind, types = column.type, pa.types
    if types.is_dictionary(kind) or _is_arrow_text(column):
        if wanted in (None, "category"):
            encoded = column if types.is_dictionary(kind) else column.dictionary_encode()
            codes = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
            return "category", Category(codes, encoded.dictionary.to_pylist())
        return from_values(as_objects(column.to_pylist()), name, wanted)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        if wanted == "category":
            return from_values(as_objects(column.to_pylist()), name, wanted)
        return from_values(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), name, wanted)
    if types.is_null(kind):
        if wanted == "category":
            return "category", Category(np.full(len(column), -1), [])
        return from_values(np.full(len(column), np.nan), name, wanted)
    if types.is_timestamp(kind) or types.is_date(kind):
        stamps = column.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False)
        return from_values(stamps.to_numpy(zero_copy_only=False).astype("datetime64[us]"), name, wanted)
    if types.is_duration(kind):
        return from_values(column.to_numpy(zero_copy_only=False).astype("timedelta64[us]"), name, wanted)
    if types.is_time(kind):
        whole = [None if v is None else v.hour * 3600 + v.minute * 60 + v.second for v in column.to_pylist()]
        return from_values(np.array(whole, dtype=np.float64), name, wanted)
    raise ValueError(
        f"column {name!r} holds {kind}: an estimator reads numbers, booleans, strings, categories, dates and times. "
        "Leave it out with columns=[…]."
    )


def _sort_objects(values: np.ndarray) -> tuple[np.ndarray, str]:
    """Python objects as numbers, dates or categories: by what all values that are not missing are."""
    missing = is_missing(values)
    types = {type(v) for v in values[~missing]}

    def all_are(*kinds: type) -> bool:
        return all(issubclass(t, kinds) for t in types)

    if any(issubclass(t, complex | np.complexfloating) for t in types):
        return values, "c"
    if all_are(int, float, np.number, np.bool_, decimal.Decimal):  # or nothing but missing values
        return np.array([np.nan if gone else float(v) for v, gone in zip(values, missing, strict=True)]), "f"
    if all_are(datetime.date, np.datetime64):
        stamps = [np.datetime64("NaT") if gone else _stamp(v) for v, gone in zip(values, missing, strict=True)]
        return np.array(stamps, dtype="datetime64[us]"), "M"
    if all_are(datetime.timedelta):
        return np.array([np.nan if gone else v.total_seconds() for v, gone in zip(values, missing, strict=True)]), "f"
    out = values.astype(object)
    out[missing] = None
    return out, "category"


def _from_text(values: np.ndarray, name: str, wanted: str) -> list[np.ndarray]:
    """Text where `fit` saw numbers or dates, as it comes from a file: converted, or an error that names the value."""
    words = {"true": 1.0, "false": 0.0, "": np.nan}
    out = np.full(len(values), np.nan)
    stamps = np.full(len(values), np.datetime64("NaT"), dtype="datetime64[us]")
    for i, value in enumerate(values):
        if value is None:
            continue
        try:
            if wanted == "datetime":
                stamps[i] = np.datetime64(str(value))
            else:
                out[i] = words[str(value).lower()] if str(value).lower() in words else float(value)
        except (TypeError, ValueError):
            raise ValueError(f"column {name!r} held {wanted}s in fit, but row {i} is {str(value)!r} here.") from None
    return _datetime(stamps) if wanted == "datetime" else [out]


def _datetime(stamps: np.ndarray) -> list[np.ndarray]:
    """Seconds since 1970, hour of the day and day of the week (0 is Monday)."""
    missing = np.isnat(stamps)
    seconds = np.where(missing, np.nan, stamps.astype("datetime64[us]").astype(np.int64) / 1e6)
    return [seconds, seconds % 86_400 / 3600, (np.floor(seconds / 86_400) + 3) % 7]


def _stamp(value: Any) -> np.datetime64:
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return np.datetime64(value, "us")


def _is_arrow_text(column: Any) -> bool:
    import pyarrow as pa

    kind = column.type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | int | float | bool) else str(value)


def as_objects(values: list[Any]) -> np.ndarray:
    """A list as an array of objects, whatever they are."""
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out
