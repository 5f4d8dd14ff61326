"""Functions of Arrow tables that an engine moves tables between: encode, merge, remove, decode.

A table of states has one row per set: its name (first column), ``members`` (number of rows it was made from), the
columns known of the set (z), and one column ``state.…`` for each part of the state.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..io.files import arrow
from ..io.source import Source
from ..io.table_sets import TableSets, to_sets
from ..sets import Sets
from .model import Parts, SetModel, set_model

BATCH = 8_000  # members that pass through phi at a time: 8 MB for 128 numbers in float64, which stays near the cache
MEMBERS = "members"
PREFIX = "state."


class Function:
    """Function of an Arrow table that needs a model. It is pickled without what it derives from the model.

    Parameters
    ----------
    model : str, Path, estimator or DeepSet
        A model, or the path or URI of a model folder, which is then loaded once per process.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("net", "source")}

    @functools.cached_property
    def net(self) -> SetModel:
        """The model."""
        return set_model(self.model)


class Head:
    """First rows of a table in memory, in place of a file.

    Parameters
    ----------
    table : pyarrow.Table
        The table.
    """

    path = "the table"

    def __init__(self, table: Any) -> None:
        self.schema, self._rows = table.schema, table.slice(0, 100)

    def head(self, columns: list[str]) -> Any:
        """Return some columns."""
        return self._rows.select(columns)


class _Rows(Source):
    """Columns of a table in memory, as a model wants them."""

    def __init__(self, table: Any, model: Any, by: str | None, features: Sequence[str] | None, z: Sequence[str]):
        self._head = Head(table)
        super().__init__(model, [], by, features=features, z=z)

    def open(self, number: int) -> Any:
        return self._head


class Encode(Function):
    """Rows of sets to one partial state per set; see :func:`encode`."""

    def __init__(self, model: Any, by: str | None, features: Sequence[str] | None = None, z: Sequence[str] = ()):
        super().__init__(model)
        self.by, self.features, self.z = by, features, list(z)

    def open(self, table: Any) -> Source:
        """Return the columns of a table as the model wants them."""
        if "source" not in self.__dict__:
            self.source = _Rows(table, self.net.model, self.by, self.features, self.z)
        return self.source

    def sets(self, table: Any) -> TableSets:
        """Return the rows as sets, checked."""
        source = self.open(table)
        return source.check(to_sets(table, source.shape, source.columns))

    def __call__(self, table: Any) -> Any:
        sets = self.sets(table)
        pieces = list(_pieces(sets, BATCH))
        each = [self._states(piece) for piece in pieces]
        states = arrow().concat_tables(each)
        return states if len(states) == len(sets) else Merge(self.net)(states)

    def _states(self, sets: TableSets) -> Any:
        columns = self.source.columns
        z = {} if sets.z is None else {name: sets.z[:, i] for i, name in enumerate(columns.z)}
        parts = self.net.encode(sets)
        return _table({self.source.naming: sets.ids, MEMBERS: sets.sizes.astype(np.int64), **z}, parts)


class Predict(Encode):
    """Rows of whole sets to predictions, without states: all rows of each set must be in the table."""

    def __call__(self, table: Any) -> Any:
        each = [arrow().table(self.net.predict(p, self.source.naming)) for p in _whole_pieces(self.sets(table))]
        return arrow().concat_tables(each)


class Merge(Function):
    """States of sets to one state per set, sorted by name; see :func:`merge`."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        if isinstance(model, SetModel):
            self.net = model

    def __call__(self, table: Any) -> Any:
        compute = arrow().compute
        if table.num_rows < 2:
            return table
        ids = _combined(table.column(0))
        order = compute.sort_indices(ids)
        ids = ids.take(order)
        same = compute.equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
        rows = order.to_numpy().astype(np.int64)
        known, parts = _split(table.take(order) if (np.diff(rows) != 1).any() else table)
        while same.any():
            # States of one set are merged in pairs of neighbours until one is left: few, large steps.
            starts = np.concatenate([[True], ~same])
            numbers = np.arange(len(starts))
            place = numbers - np.maximum.accumulate(np.where(starts, numbers, 0))
            left = np.flatnonzero((place[:-1] % 2 == 0) & same)
            self._check_same(known, left)
            a, b = torch.from_numpy(left), torch.from_numpy(left + 1)
            merged = self.net.state(_rows(parts, a)) + self.net.state(_rows(parts, b))
            for name, part in merged.parts.items():
                parts[name].index_copy_(0, a, part)
            members = known[MEMBERS]
            members[left] += members[left + 1]
            keep = np.flatnonzero(place % 2 == 0)
            parts = _rows(parts, torch.from_numpy(keep))
            known = {n: c.take(arrow().array(keep)) if n == table.column_names[0] else c[keep] for n, c in known.items()}
            ids = next(iter(known.values()))
            same = compute.equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
        return _table(known, parts)

    @staticmethod
    def _check_same(known: dict[str, Any], left: np.ndarray) -> None:
        ids = next(iter(known.values()))
        for name, column in list(known.items())[2:]:
            differ = left[column[left] != column[left + 1]]
            if len(differ):
                a, b = column[differ[0]], column[differ[0] + 1]
                raise ValueError(
                    f"set {ids[int(differ[0])].as_py()!r} has {name} = {a} in one row and {b} in another: a column "
                    "known of the set (z) needs one value per set."
                )


class Remove(Merge):
    """States and states to be removed from them to the states of what is left; see :func:`remove`."""

    def __call__(self, table: Any, gone: Any = None) -> Any:
        """Without `gone`, rows of `table` with negative ``members`` are those to be removed."""
        compute = arrow().compute
        if gone is None:
            negative = compute.less(table[MEMBERS], 0)
            table, gone = table.filter(compute.invert(negative)), negate(table.filter(negative))
        states, gone = super().__call__(table), super().__call__(gone)
        known, parts = _split(states)
        taken, taken_parts = _split(gone)
        ids, names = (_combined(each.column(0)) for each in (states, gone))
        found = compute.index_in(names, value_set=ids)
        if found.null_count:
            name = names[found.is_null().index(True).as_py()].as_py()
            raise ValueError(f"set {name!r} has no state from which members could be removed.")
        rows = found.to_numpy().astype(np.int64)
        members, minus = known[MEMBERS], taken[MEMBERS]
        few = np.flatnonzero(members[rows] < minus)
        if len(few):
            i = int(few[0])
            raise ValueError(
                f"set {names[i].as_py()!r} has {members[rows[i]]} members, so {minus[i]} cannot be removed from it."
            )
        if not len(rows):
            return states
        at = torch.from_numpy(rows)
        before = self.net.state(_rows(parts, at))
        left, nothing = before - self.net.state(taken_parts), before - before  # no rounding errors in empty sets
        members[rows] -= minus
        none = torch.from_numpy(members[rows] == 0)
        for name, part in left.parts.items():
            empty = none.reshape(-1, *[1] * (part.ndim - 1))
            parts[name].index_copy_(0, at, torch.where(empty, nothing.parts[name], part))
        return _table(known, parts)


class Decode(Function):
    """States of sets to predictions; see :func:`decode`."""

    def __call__(self, table: Any) -> Any:
        known, parts = _split(table)
        name, *_ = known
        z = np.stack(list(known.values())[2:], axis=1) if len(known) > 2 else None
        return arrow().table({name: known[name], **self.net.decode(parts, z)})


class Chain:
    """Functions of a table, one after another.

    Parameters
    ----------
    *functions : callable
        Functions from a table to a table.
    """

    def __init__(self, *functions: Any) -> None:
        self.functions = functions

    def __call__(self, table: Any) -> Any:
        for function in self.functions:
            table = function(table)
        return table


def encode(model: Any, *, by: str, features: Sequence[str] | None = None, z: Sequence[str] = ()) -> Encode:
    """Return a function from a table of rows to a table of partial states, one per set seen.

    Parameters
    ----------
    model : str, Path, SetClassifier, SetRegressor or DeepSet
        A fitted model, or the path or URI of a model folder.
    by : str
        Column that names the set of each row.
    features, z : sequence of str, optional
        Columns of the members and of the set. By default those of the fit; for a `DeepSet` all other columns.

    Returns
    -------
    callable
        From `pyarrow.Table` to `pyarrow.Table`; it can be pickled.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from deepsets import nn
    >>> model = nn.DeepSet(nn.mlp(1, 4), nn.mlp(4, 1), pool="mean")
    >>> rows = pa.table({"shop": ["a", "b", "a"], "price": [1.0, 2.0, 4.0]})
    >>> states = encode(model, by="shop")(rows)
    >>> states.column_names, states["members"].to_pylist()
    (['shop', 'members', 'state.sum', 'state.count'], [2, 1])
    >>> both = merge(model)(pa.concat_tables([states, states]))
    >>> both["members"].to_pylist(), decode(model)(both).column_names
    ([4, 2], ['shop', 'prediction'])
    """
    return Encode(model, by, features, z)


def merge(model: Any) -> Merge:
    """Return a function that merges a table of states to one state per set, sorted by name.

    It is associative, and commutative up to rounding in float64: an engine may merge in any grouping and order.

    Parameters
    ----------
    model : str, Path, SetClassifier, SetRegressor or DeepSet
        The model of :func:`encode`: its pooling defines what merging is.
    """
    return Merge(model)


def remove(model: Any) -> Remove:
    """Return a function of two tables of states that removes the members of the second from the sets of the first.

    Parameters
    ----------
    model : str, Path, SetClassifier, SetRegressor or DeepSet
        The model of :func:`encode`. Its pooling must be a sum (sum, mean, sqrt, std).
    """
    return Remove(model)


def decode(model: Any) -> Decode:
    """Return a function from a table of states to a table of predictions.

    Parameters
    ----------
    model : str, Path, SetClassifier, SetRegressor or DeepSet
        The model of :func:`encode`.
    """
    return Decode(model)


def negate(states: Any) -> Any:
    """Return a table of states with the sign of ``members`` changed: negative ones are to be removed.

    Parameters
    ----------
    states : pyarrow.Table
        A table of states.
    """
    return states.set_column(1, MEMBERS, arrow().compute.negate(states[MEMBERS]))


def hashes(ids: Any) -> np.ndarray:
    """Return 32 evenly distributed bits for each name of a set, the same in every process.

    Parameters
    ----------
    ids : pyarrow.Array or pyarrow.ChunkedArray
        Names of sets.
    """
    ids = _combined(ids)
    if arrow().types.is_integer(ids.type):
        numbers = ids.to_numpy().astype(np.uint64)
    else:
        numbers = np.fromiter((zlib.crc32(str(name).encode()) for name in ids.to_pylist()), np.uint64, len(ids))
    numbers = (numbers ^ (numbers >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    return ((numbers ^ (numbers >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(32)).astype(np.int64)


def _pieces(sets: TableSets, members: int) -> Iterator[TableSets]:
    """Sets cut after every `members` members; a set that is cut has rows in both pieces."""
    if not isinstance(sets.X, Sets) or len(sets.X.values) <= members or (sets.sizes == 0).any():
        yield from _whole_pieces(sets)
        return
    ends = np.cumsum(sets.sizes)
    for start in range(0, len(sets.X.values), members):
        stop = min(start + members, int(ends[-1]))
        which = slice(np.searchsorted(ends, start, side="right"), np.searchsorted(ends, stop) + 1)
        offsets = np.concatenate([[start], ends[which].clip(max=stop)]) - start
        X = Sets(sets.X.values[start:stop], torch.from_numpy(offsets))
        yield TableSets(X, np.diff(offsets), sets.ids[which], None if sets.z is None else sets.z[which], [], True)


def _whole_pieces(sets: TableSets, members: int = 6 * BATCH) -> Iterator[TableSets]:
    """Whole sets with about `members` members together."""
    share = (np.cumsum(sets.sizes) - 1).clip(min=0) // members
    cuts = [0, *(np.flatnonzero(np.diff(share)) + 1).tolist(), len(sets)]
    for which in map(slice, cuts[:-1], cuts[1:]):
        z = None if sets.z is None else sets.z[which]
        yield TableSets(sets.X[which], sets.sizes[which], sets.ids[which], z, [], True)


def _table(known: dict[str, Any], parts: Parts) -> Any:
    """A table of states from the columns known of the sets and the parts of their states."""
    return arrow().table({**known, **{PREFIX + name: _column(part) for name, part in parts.items()}})


def _split(table: Any) -> tuple[dict[str, Any], Parts]:
    """The reverse: names as an Arrow array, members and z as arrays, parts as tensors."""
    known: dict[str, Any] = {}
    parts: Parts = {}
    for place, name in enumerate(table.column_names):
        if name.startswith(PREFIX):
            parts[name.removeprefix(PREFIX)] = _tensor(table[name])
        else:
            column = table.column(place)
            known[name] = _combined(column) if place == 0 else np.array(column.to_numpy())
    return known, parts


def _column(part: Tensor) -> Any:
    """A tensor (B, ...) as lists of fixed size. Numbers that cannot be null are read four times as fast from Parquet."""
    pa = arrow()
    array = pa.array(part.reshape(-1).numpy())
    for width in reversed(part.shape[1:]):
        kind = pa.list_(pa.field("element", array.type, nullable=False), width)
        array = pa.FixedSizeListArray.from_arrays(array, type=kind)
    return array


def _tensor(column: Any) -> Tensor:
    """The reverse, also from lists of any kind, as other engines return them."""
    shape, chunks = [len(column)], list(column.chunks) or [arrow().array([], column.type)]
    while hasattr(chunks[0].type, "value_type"):
        inner = [chunk.flatten() for chunk in chunks]
        shape.append(sum(map(len, inner)) // max(1, sum(map(len, chunks))))
        chunks = inner
    flat = np.concatenate(list(chain([np.zeros(0)], (chunk.to_numpy(zero_copy_only=False) for chunk in chunks))))
    return torch.from_numpy(flat.reshape(shape))


def _rows(parts: Parts, rows: Tensor) -> Parts:
    return {name: part.index_select(0, rows) for name, part in parts.items()}


def _combined(column: Any) -> Any:
    pa = arrow()
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
