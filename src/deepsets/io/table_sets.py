"""Arrow tables to sets."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from ..sets import Sets
from ..sets.tables import group_codes
from .columns import Columns, Shape
from .files import is_list, is_number, is_text, numbers
from .storage import TableError, arrow

_ROWS = 1 << 12  # that are in the cache at once
_EXACT = 2**53  # integers below are exact as floats


@dataclass(frozen=True)
class TableSets:
    """Sets of a table: B sets with N members in all.

    Parameters
    ----------
    X : Sets, list of list of str, or pyarrow.LargeListArray of structs
        If all features are numbers, values (N, features), NaN where they are missing. If the only feature
        is text, the tokens of each set. Otherwise one list of members per set, each with its named features.
    sizes : ndarray of shape (B,)
        Number of members of each set.
    ids : pyarrow.Array of length B
        Names of the sets.
    z : ndarray of shape (B, k), pyarrow.Table or None
        Columns known of each set: numbers, or a table if some are not.
    targets : list of pyarrow.Array
        One array per target, with N entries in the order of the members, or B entries if `per_set`.
    per_set : bool
        Whether targets have one entry per set.
    """

    X: Any
    sizes: np.ndarray
    ids: Any
    z: Any
    targets: list[Any]
    per_set: bool

    def __len__(self) -> int:
        return len(self.sizes)

    def where(self, row: int) -> str:
        """Return the set and the position of a member, given by its number among all N, in words."""
        ends = self.sizes.cumsum()
        b = int(np.searchsorted(ends, row, side="right"))
        return f"set {self.ids[b].as_py()!r}, member {row - int(ends[b] - self.sizes[b])}"

    def named(self, columns: Columns) -> tuple[Any, Any]:
        """Return X, one list of named features per set, and z, one row per set, as estimators learn them."""
        X, z = self.X, self.z
        if isinstance(X, Sets):
            values = X.values.numpy()
            X = _structs({name: values[:, i] for i, name in enumerate(columns.features)}, X.offsets.numpy())
        elif isinstance(X, list):
            flat = [token for tokens in X for token in tokens]
            X = _structs({columns.features[0]: arrow().array(flat, arrow().string())}, _ends(self.sizes))
        if isinstance(z, np.ndarray):
            z = arrow().table({name: z[:, i] for i, name in enumerate(columns.z)})
        return X, z


def to_sets(table: Any, shape: Shape, columns: Columns, first: int = 0, dtype: torch.dtype | None = None) -> TableSets:
    """Group the rows of a table into sets, in order of appearance.

    Examples
    --------
    >>> pa = arrow()
    >>> table = pa.table({"box": ["a", "b", "a"], "x": [1.0, 2.0, 3.0]})
    >>> shape = Shape(False, {"box": ("box", None), "x": ("x", None)}, frozenset(), {})
    >>> sets = to_sets(table, shape, Columns("box", ["x"], [], []))
    >>> sets.ids.to_pylist(), sets.X[0].tolist()
    (['a', 'b'], [[1.0], [3.0]])
    """
    pa = arrow()
    order = None
    if shape.nested:
        sizes = np.diff(_offsets(_column(table, columns.features[0], shape), columns.features[0], first))
        ids = pa.array(np.arange(first, first + len(sizes)))
        if columns.by:
            ids = identifiers(_entry(_column(table, columns.by, shape), columns.by, shape), columns.by, first)
    else:
        assert columns.by is not None
        names = _entry(_column(table, columns.by, shape), columns.by, shape)
        encoded = identifiers(names, columns.by, first).dictionary_encode()
        codes, ids = encoded.indices.to_numpy(), encoded.dictionary
        if (np.diff(codes) < 0).any():
            order, grouped = group_codes(codes, len(ids))
            sizes = np.diff(grouped.numpy())
        else:
            sizes = np.bincount(codes, minlength=len(ids))

    def rows(name: str) -> Any:
        """A column of the members, in the order of the table."""
        column = _column(table, name, shape)
        if shape.nested:
            if not np.array_equal(np.diff(_offsets(column, name, first)), sizes):
                raise TableError(f"the lists of {name!r} and {columns.features[0]!r} differ in length.")
            return column.flatten()
        return column

    def members(name: str) -> Any:
        return rows(name) if order is None else rows(name).take(pa.array(order))

    offsets = torch.from_numpy(_ends(sizes))
    given = {name: rows(name) for name in columns.features if shape.places[name][1] is None}
    if all(is_number(column.type) for column in given.values()):
        matrix = _matrix_of(columns.features, shape, given, rows, dtype or torch.float64)
        # Rows of the matrix are put into order at once: columns one by one would touch all memory for each of them.
        if order is not None:
            matrix = torch.from_numpy(matrix.numpy().take(order, axis=0))  # six times as fast as torch's own
        X: Any = Sets(matrix, offsets, ensure_finite=False)
    else:
        X = _mixed({name: _entry(members(name), name, shape) for name in columns.features}, offsets)
    z = None
    if columns.z:
        per_row = [_entry(_column(table, n, shape) if shape.nested else members(n), n, shape) for n in columns.z]
        each = (
            per_row
            if shape.nested
            else [one_per_set(c, n, sizes, ids) for c, n in zip(per_row, columns.z, strict=True)]
        )
        named = dict(zip(columns.z, each, strict=True))
        plain = all(is_number(column.type) for column in each)
        z = np.stack([numbers(c, n) for n, c in named.items()], axis=1) if plain else pa.table(named)
    per_set = shape.nested and not any(name in shape.lists for name in columns.target)
    targets = [
        _entry(_column(table, name, shape) if per_set else members(name), name, shape) for name in columns.target
    ]
    return TableSets(X, sizes, ids, z, targets, per_set)


def identifiers(column: Any, name: str, first: int = 0) -> Any:
    """Return the column that names the sets, as integers or text.

    Floats are accepted if they are whole numbers that floats represent exactly, and become integers.
    """
    pa = arrow()
    if column.null_count:
        raise TableError(f"row {first + column.is_null().index(True).as_py()} has no value in the set column {name!r}.")
    if pa.types.is_floating(column.type):
        values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        bad = np.flatnonzero(~((values == np.round(values)) & (np.abs(values) < _EXACT)))
        if len(bad):
            raise TableError(
                f"the set column {name!r} holds floats such as {float(values[bad[0]])} (row {first + int(bad[0])}): "
                "names of sets must be integers or text, because different names may be the same float."
            )
        return pa.array(values.astype(np.int64))
    return column


def same_within_sets(column: Any, sizes: np.ndarray) -> int | None:
    """Return the number of the first set in which a column changes, or None if it changes in no set."""
    codes = column.dictionary_encode(null_encoding="encode").indices.to_numpy()
    starts = np.cumsum(sizes) - sizes
    full = sizes > 0
    changes = codes != np.repeat(codes[starts[full]], sizes[full])
    return int(np.repeat(np.arange(len(sizes)), sizes)[changes.argmax()]) if changes.any() else None


def one_per_set(column: Any, name: str, sizes: np.ndarray, ids: Any) -> Any:
    """Return the value of each set in a column of members; one that changes within a set is an error."""
    bad = same_within_sets(column, sizes)
    if bad is not None:
        found = ids[bad].as_py()
        raise TableError(
            f"column {name!r} must have one value per set, but it changes within set {found!r}: it describes members."
        )
    if (sizes == 0).any():
        raise TableError(f"set {ids[int((sizes == 0).argmax())].as_py()!r} is empty, so it has no {name!r}.")
    return column.take(arrow().array(np.cumsum(sizes) - sizes))


def _matrix_of(names: list[str], shape: Shape, given: dict[str, Any], rows: Any, dtype: torch.dtype) -> torch.Tensor:
    """Numeric features as a matrix (N, features), in the order of the table."""
    columns: list[np.ndarray] = []
    vectors: dict[str, np.ndarray] = {}
    for name in names:
        inside, entry = shape.places[name]
        if entry is None:
            same = dtype == torch.float32 and arrow().types.is_float32(given[name].type)
            columns.append(given[name].to_numpy(zero_copy_only=False) if same else numbers(given[name], name))
        else:
            if inside not in vectors:  # all entries at once: one by one would cost the square of their number
                vectors[inside] = _matrix(rows(name), inside)
            if entry >= vectors[inside].shape[1]:
                raise TableError(f"the members in column {inside!r} have {vectors[inside].shape[1]} numbers.")
            columns.append(vectors[inside][:, entry])
    out = torch.empty(len(columns[0]), len(names), dtype=dtype)
    for start in range(0, len(out), _ROWS):  # a column at a time would touch all memory for each of them
        block = out[start : start + _ROWS].numpy()
        for i, column in enumerate(columns):
            block[:, i] = column[start : start + _ROWS]
    return out


def _mixed(columns: dict[str, Any], offsets: torch.Tensor) -> Any:
    """Features that are not all numbers: tokens where the only one is text, or structs."""
    (only, *others) = columns.values()
    if not others and is_text(only.type) and not only.null_count:
        flat = only.to_pylist()
        return [flat[a:b] for a, b in pairwise(offsets.tolist())]
    return _structs(columns, offsets.numpy())


def _structs(columns: dict[str, Any], offsets: np.ndarray) -> Any:
    """One list per set of members with named features."""
    pa = arrow()
    members = pa.StructArray.from_arrays([pa.array(column) for column in columns.values()], list(columns))
    return pa.LargeListArray.from_arrays(pa.array(offsets), members)


def _ends(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)])


def _entry(column: Any, name: str, shape: Shape) -> Any:
    """A column of single values: of vectors, the entry that the name stands for."""
    inside, entry = shape.places[name]
    return column if entry is None else arrow().array(_matrix(column, inside)[:, entry])


def _matrix(vectors: Any, name: str) -> np.ndarray:
    """Vectors as a matrix (N, width)."""
    if vectors.null_count:
        raise TableError(f"member {vectors.is_null().index(True).as_py()} in column {name!r} is null.")
    if is_list(vectors.type):
        lengths = vectors.value_lengths().to_numpy()
        width = int(lengths[0]) if len(lengths) else 1
        if (lengths != width).any():
            raise TableError(
                f"the members in column {name!r} have {width} and {lengths[lengths != width][0]} numbers: "
                "all need the same."
            )
    else:
        width = vectors.type.list_size
    return numbers(vectors.flatten(), name).reshape(len(vectors), width)


def _column(table: Any, name: str, shape: Shape) -> Any:
    """A column of the file as one Arrow array; vectors as they are."""
    pa = arrow()
    column = table[shape.places[name][0]].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def _offsets(column: Any, name: str, first: int) -> np.ndarray:
    if column.null_count:
        row = first + column.is_null().index(True).as_py()
        raise TableError(f"row {row} of {name!r} is null: an empty list is an empty set, null is not a set.")
    offsets = column.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0]
