"""Tables with one row per element to sets, and back; the one grouping of rows into sets."""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from .ragged import Ragged


class TableConversions(Ragged):
    """Conversions from and to data frames."""

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        by: str | Sequence[str],
        columns: Sequence[str] | None = None,
        weights: str | None = None,
        ensure_finite: bool = True,
    ) -> Self:
        """Build a batch from a table with one row per element; rows of a set need not be adjacent.

        Parameters
        ----------
        frame : pandas or polars DataFrame, or any table with ``__arrow_c_stream__``
            For example a pyarrow Table, a DuckDB relation or a Hugging Face data set. Sets come in the order in which
            their key first appears. Features become torch's default dtype.
        by : str or sequence of str
            Column or columns that name the set of a row.
        columns : sequence of str, optional
            Feature columns (default: all others).
        weights : str, optional
            Column of weights.
        ensure_finite : bool, default=True
            Whether NaN and infinity are errors.

        Examples
        --------
        >>> import pandas as pd
        >>> from deepsets import Sets
        >>> table = pd.DataFrame({"basket": ["b", "a", "b"], "price": [1.0, 2.0, 3.0]})
        >>> [x.flatten().tolist() for x in Sets.from_frame(table, by="basket")]
        [[1.0, 3.0], [2.0]]
        """
        frame, keys = as_frame(frame), [by] if isinstance(by, str) else list(by)
        features = [c for c in frame.columns if c not in keys and c != weights] if columns is None else list(columns)
        table = group_frame(frame, keys, features, extra=[weights] if weights else [])
        flat = torch.from_numpy(_numbers(frame, weights)[table.rows]) if weights else None
        dtype = torch.get_default_dtype()
        return cls(
            torch.from_numpy(table.values).to(dtype),
            table.offsets,
            weights=None if flat is None else flat.to(dtype),
            ensure_finite=ensure_finite,
        )

    def to_frame(
        self, *, by: str = "set", columns: Sequence[str] | None = None, keys: Sequence[Any] | None = None
    ) -> Any:
        """Return a pandas DataFrame with one row per element. Empty sets have no rows.

        Parameters
        ----------
        by : str, default="set"
            Name of the column that holds the key of the set.
        columns : sequence of str, optional
            Names of the features (default: x0, x1, …).
        keys : sequence, optional
            Key of each set (default: 0, 1, …).

        Returns
        -------
        pandas.DataFrame
            With a last column "weight" if the batch has weights.
        """
        import pandas as pd

        sets = self.materialize().cpu()
        values = sets.values.detach().numpy()
        if values.ndim > 2:
            raise ValueError(f"a table has one column per feature; these elements have shape {values.shape[1:]}.")
        values = values.reshape(len(values), sets.width)
        names = list(columns) if columns is not None else [f"x{i}" for i in range(sets.width)]
        if len(names) != sets.width:
            raise ValueError(f"found {len(names)} names for {sets.width} features.")
        ids = sets.set_ids.numpy()
        if keys is not None and len(keys) != len(self):
            raise ValueError(f"found {len(keys)} keys for {len(self)} sets.")
        table = {by: ids if keys is None else np.asarray(keys)[ids]}
        table |= {name: values[:, i] for i, name in enumerate(names)}
        if sets.weights is not None:
            table["weight"] = sets.weights.detach().numpy()
        return pd.DataFrame(table)


class Grouped(NamedTuple):
    """Rows of a table grouped into sets.

    Attributes
    ----------
    values : ndarray
        (N, D), the rows of a set together.
    offsets : Tensor
        (B + 1,)
    rows : ndarray
        (N,) number of the row of each element in the table; ``rows[offsets[:-1]]`` is the first row of each set.
    """

    values: np.ndarray
    offsets: torch.Tensor
    rows: np.ndarray


def as_frame(table: Any) -> Any:
    """Convert a table of any library to a pandas DataFrame; pandas and polars frames stay as they are.

    Parameters
    ----------
    table : DataFrame, pyarrow Table, DuckDB relation, Hugging Face data set, …
    """
    if type(table).__module__.split(".")[0] in ("pandas", "polars"):
        return table
    if hasattr(table, "to_pandas"):
        return table.to_pandas()
    if hasattr(table, "__arrow_c_stream__"):
        import pyarrow as pa

        return pa.table(table).to_pandas()
    raise ValueError(f"expected a table with named columns, found {type(table).__name__}.")


def group_frame(frame: Any, by: Sequence[str], columns: Sequence[str], *, extra: Sequence[str] = ()) -> Grouped:
    """Group the rows of a data frame into sets.

    Parameters
    ----------
    frame : pandas or polars DataFrame
        One row per element.
    by : sequence of str
        Columns that name the set of a row.
    columns : sequence of str
        Feature columns; they must hold numbers, where NaN is allowed.
    extra : sequence of str
        Other columns that must exist.

    Returns
    -------
    Grouped
        With float64 values.
    """
    names = list(frame.columns)
    known = ", ".join(map(str, names))
    for name in [*by, *columns, *extra]:
        if name not in names:
            raise ValueError(f"the table has no column {name!r}; it has: {known}.")
    if not by:
        raise ValueError(f"by names no column, so rows cannot be grouped into sets; the table has: {known}.")
    if not columns:
        raise ValueError(f"no feature columns are left beside {', '.join(map(str, by))}; the table has: {known}.")
    if len(frame) == 0:
        raise ValueError("the table has no rows, so there are no sets.")
    rows, offsets = group_rows([_column(frame, key) for key in by], by)
    return Grouped(np.stack([_numbers(frame, name)[rows] for name in columns], axis=1), offsets, rows)


def group_rows(keys: Sequence[np.ndarray], names: Sequence[str]) -> tuple[np.ndarray, torch.Tensor]:
    """Group rows with equal keys; groups, and rows in a group, stay in order of appearance.

    Parameters
    ----------
    keys : sequence of ndarray
        One or more columns of equal length. Values are compared with ``==``: 1 and "1" are two sets.
    names : sequence of str
        Names of the columns, for error messages.

    Returns
    -------
    rows : ndarray
        (N,) row numbers, group after group.
    offsets : Tensor
        (B + 1,) where each group starts in `rows`.
    """
    codes = np.zeros(len(keys[0]), dtype=np.int64)
    for key, name in zip(keys, names, strict=True):
        missing = is_missing(key)
        if missing.any():
            raise ValueError(f"row {int(missing.argmax())} has no value in the set column {name!r}.")
        code = _codes(key)
        _, codes = np.unique(codes * (int(code.max(initial=0)) + 1) + code, return_inverse=True)
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    appearance = np.empty(len(first), dtype=np.int64)
    appearance[np.argsort(first)] = np.arange(len(first))
    return group_codes(appearance[inverse], len(first))


def group_codes(codes: np.ndarray, count: int) -> tuple[np.ndarray, torch.Tensor]:
    """Group rows with equal codes; rows in a group stay in order.

    Parameters
    ----------
    codes : ndarray
        (N,) group of each row, from 0 to count - 1.
    count : int
        Number of groups.

    Returns
    -------
    rows, offsets
        As for :func:`group_rows`.
    """
    offsets = np.concatenate([[0], np.bincount(codes, minlength=count).cumsum()])
    small = count <= 1 << 16  # 16 bits are sorted by digits, four times as fast
    rows = np.argsort(codes.astype(np.uint16) if small else codes, kind="stable")
    return rows, torch.from_numpy(offsets)


def is_missing(column: np.ndarray) -> np.ndarray:
    """Mark missing values: None, NaN, NaT and pandas' NA.

    Parameters
    ----------
    column : ndarray
        (N,) of any dtype.

    Returns
    -------
    ndarray
        (N,) bool.
    """
    if column.dtype.kind == "O":  # what is missing is None or not equal to itself; NA == NA is neither True nor False
        same = [value is not None and value == value for value in column]  # noqa: PLR0124
        return np.array([not (isinstance(s, bool | np.bool_) and s) for s in same], dtype=bool)
    return np.asarray(column != column)  # noqa: PLR0124


def _codes(key: np.ndarray) -> np.ndarray:
    """Number equal values alike. Objects need not be sortable."""
    if key.dtype.kind != "O":
        return np.unique(key, return_inverse=True)[1]
    seen: dict[Any, int] = {}
    return np.array([seen.setdefault(value, len(seen)) for value in key], dtype=np.int64)


def _column(frame: Any, name: str) -> np.ndarray:
    return np.asarray(frame[name].to_numpy())


def _numbers(frame: Any, name: str) -> np.ndarray:
    column = _column(frame, name)
    if column.dtype.kind not in "biuf":
        number = int | float | np.number | decimal.Decimal
        bad = next(((i, v) for i, v in enumerate(column) if not isinstance(v, number)), None)
        if bad is not None:
            raise ValueError(
                f"column {name!r} must hold numbers, but row {bad[0]} is {str(bad[1])!r}. "
                "Choose the feature columns with columns=[…]."
            )
    return column.astype(np.float64)
