"""Arrow tables to sets."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from ..sets import Sets
from .columns import Columns, Shape, is_list
from .files import arrow


class TableSets(NamedTuple):
    """A table as B sets with N members.

    X:       `Sets` with values (N, features), NaN where they are missing; or a list of lists of tokens.
    sizes:   (B,). ids: the names of the sets, an Arrow array (B,). z: (B, k) or None.
    targets: Arrow arrays, (N,) in the order of the members, or (B,) where `per_set`.
    """

    X: Sets | list[list[str]]
    sizes: np.ndarray
    ids: Any
    z: np.ndarray | None
    targets: list[Any]
    per_set: bool

    def __len__(self) -> int:
        return len(self.sizes)

    def where(self, row: int) -> str:
        """The set and the place of member `row`, in words."""
        ends = self.sizes.cumsum()
        b = int(np.searchsorted(ends, row, side="right"))
        return f"set {self.ids[b].as_py()!r}, member {row - int(ends[b] - self.sizes[b])}"


def to_sets(table: Any, shape: Shape, columns: Columns, first: int = 0) -> TableSets:
    """A table (rows of a set need not be neighbours) to sets, in order of appearance. first: the number of its row 0.

    >>> pa = arrow()
    >>> table = pa.table({"box": ["a", "b", "a"], "x": [1.0, 2.0, 3.0]})
    >>> shape = Shape(False, {"box": ("box", None), "x": ("x", None)}, frozenset())
    >>> sets = to_sets(table, shape, Columns("box", ["x"], [], []))
    >>> sets.ids.to_pylist(), sets.X[0].tolist()
    (['a', 'b'], [[1.0], [3.0]])
    """
    pa = arrow()
    order = None
    if shape.nested:
        sizes = np.diff(_offsets(_whole(table, columns.features[0], shape), columns.features[0]))
        ids = _whole(table, columns.by, shape) if columns.by else pa.array(np.arange(first, first + len(sizes)))
    else:
        assert columns.by is not None
        encoded = _whole(table, columns.by, shape).dictionary_encode()
        if encoded.null_count:
            row = first + encoded.is_null().index(True).as_py()
            raise ValueError(f"row {row} has no value in the set column {columns.by!r}.")
        codes = encoded.indices.to_numpy()
        if (np.diff(codes) < 0).any():
            small = len(encoded.dictionary) <= 1 << 16  # 16 bits are sorted by digits, four times as fast
            order = np.argsort(codes.astype(np.uint16) if small else codes, kind="stable")
        sizes, ids = np.bincount(codes, minlength=len(encoded.dictionary)), encoded.dictionary

    def members(name: str) -> Any:
        column = _whole(table, name, shape)
        if shape.nested:
            if not np.array_equal(np.diff(_offsets(column, name)), sizes):
                raise ValueError(f"the lists of {name!r} and {columns.features[0]!r} differ in length.")
            return column.flatten()
        return column if order is None else column.take(pa.array(order))

    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]))
    X = _features({name: members(name) for name in columns.features}, offsets)
    starts = offsets[:-1].numpy()
    z = None
    if columns.z:
        each = [_whole(table, n, shape) if shape.nested else _first(members(n), n, starts, sizes) for n in columns.z]
        z = np.stack([numbers(column, name) for column, name in zip(each, columns.z, strict=True)], axis=1)
    flat = shape.nested and not any(name in shape.lists for name in columns.target)
    targets = [_whole(table, name, shape) if flat else members(name) for name in columns.target]
    return TableSets(X, sizes, ids, z, targets, flat)


def numbers(column: Any, name: str) -> np.ndarray:
    """An Arrow column as float64, NaN where it is null."""
    pa = arrow()
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        if not (pa.types.is_decimal(kind) or pa.types.is_null(kind)):
            shown = next((str(v) for v in column.slice(0, 100).to_pylist() if v is not None), "")
            raise ValueError(
                f"the column {name!r} must hold numbers, but it holds {kind} such as {shown!r}: leave it out of the "
                "features. A column of strings that is the only feature is learnt as tokens."
            )
    return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def same_within_sets(column: Any, sizes: np.ndarray) -> int | None:
    """The number of the first set in which a column of members changes, or None."""
    codes = column.dictionary_encode(null_encoding="encode").indices.to_numpy()
    starts = np.cumsum(sizes) - sizes
    full = sizes > 0
    changes = codes != np.repeat(codes[starts[full]], sizes[full])
    return int(np.repeat(np.arange(len(sizes)), sizes)[changes.argmax()]) if changes.any() else None


def _first(column: Any, name: str, starts: np.ndarray, sizes: np.ndarray) -> Any:
    bad = same_within_sets(column, sizes)
    if bad is not None:
        raise ValueError(f"the column {name!r} must have one value for each set, but it changes within set {bad}.")
    return column.take(arrow().array(starts))


def _features(columns: dict[str, Any], offsets: torch.Tensor) -> Sets | list[list[str]]:
    types = arrow().types
    if len(columns) == 1:
        name, column = next(iter(columns.items()))
        if types.is_string(column.type) or types.is_large_string(column.type):
            if column.null_count:
                raise ValueError(f"member {column.is_null().index(True).as_py()} has no token in column {name!r}.")
            flat = column.to_pylist()
            return [flat[a:b] for a, b in pairwise(offsets.tolist())]
    values = np.empty((int(offsets[-1]), len(columns)), dtype=np.float32)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as such
        for i, (name, column) in enumerate(columns.items()):
            values[:, i] = numbers(column, name)
    return Sets(
        torch.from_numpy(values), offsets, ensure_finite=False
    )  # NaN passes: estimators impute it, or refuse it


def _whole(table: Any, name: str, shape: Shape) -> Any:
    """A column as one Arrow array: the entry of vectors taken out, categories as their values."""
    pa = arrow()
    inside, place = shape.places[name]
    column = table[inside].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if place is None:
        return column
    width = sum(1 for held, _ in shape.places.values() if held == inside)
    if not is_list(column.type):
        return _entry(column, place, width, inside)
    offsets = _offsets(column, inside)
    return pa.LargeListArray.from_arrays(pa.array(offsets), _entry(column.flatten(), place, width, inside))


def _entry(vectors: Any, place: int, width: int, name: str) -> Any:
    """Entry `place` of every vector."""
    if vectors.null_count:
        raise ValueError(f"a member in column {name!r} is null: {width} numbers are wanted.")
    flat = vectors.flatten()
    if is_list(vectors.type):
        lengths = vectors.value_lengths().to_numpy()
        if (lengths != width).any():
            raise ValueError(
                f"the members in column {name!r} have {width} and {lengths[lengths != width][0]} numbers: "
                "all need the same."
            )
    return flat.take(arrow().array(np.arange(place, len(flat), width)))


def _offsets(column: Any, name: str) -> np.ndarray:
    if column.null_count:
        row = column.is_null().index(True).as_py()
        raise ValueError(f"row {row} of {name!r} is null: an empty list is an empty set, null is not a set.")
    offsets = column.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0]
