"""Functions of Arrow tables that an engine moves tables between: encode, merge, remove, decode."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ..io.reader import Source
from ..io.storage import arrow
from ..io.table_sets import TableSets, to_sets
from ..sets import Sets
from .model import SetModel
from .states import MEMBERS, join, negate, select, split

BATCH = 8_000  # members that pass through phi at a time: 8 MB for 128 numbers in float64, which stays near the cache


class Function:
    """Function of an Arrow table that needs a model; it is pickled without what follows from the model."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("net", "source")}

    @functools.cached_property
    def net(self) -> SetModel:
        """The model."""
        return SetModel(self.model)


class Encode(Function):
    """Rows to one partial state per set."""

    def __init__(self, model: Any, by: str | None, features: Sequence[str] | None = None, z: Sequence[str] = ()):
        super().__init__(model)
        self.by, self.features, self.z = by, features, list(z)

    def sets(self, table: Any) -> TableSets:
        """Return the rows as sets, checked."""
        if "source" not in self.__dict__:
            self.source = Source(self.net.model, [table], self.by, features=self.features, z=self.z)
        return self.source.check(to_sets(table, self.source.shape, self.source.columns, dtype=self.source.dtype))

    def __call__(self, table: Any) -> Any:
        """Encode a table."""
        sets = self.sets(table)
        pieces = list(_pieces(sets))
        parts = [self.net.encode(piece) for _, piece in pieces]
        rows = np.concatenate([np.arange(which.start, which.stop) for which, _ in pieces])
        members = np.concatenate([piece.sizes for _, piece in pieces]).astype(np.int64)
        known = {self.source.naming: sets.ids.take(arrow().array(rows)), MEMBERS: members}
        if sets.z is not None:
            columns = sets.z[rows].T if isinstance(sets.z, np.ndarray) else sets.z.take(rows).columns
            known |= dict(zip(self.source.columns.z, columns, strict=True))
        states = join(known, {name: torch.cat([each[name] for each in parts]) for name in parts[0]})
        return states if len(states) == len(sets) else Merge(self.net.model)(states)


class Predict(Encode):
    """Rows of whole sets to predictions, without states."""

    def __call__(self, table: Any) -> Any:
        """Predict for a table that has all rows of its sets."""
        sets = self.sets(table)
        each = [self.net.predict(piece, self.source.naming) for _, piece in _whole_pieces(sets, 6 * BATCH)]
        return arrow().concat_tables(map(arrow().table, each))


class Merge(Function):
    """States to one state per set, sorted by name."""

    def __call__(self, table: Any) -> Any:
        """Merge the states of each set, in pairs of neighbours until one is left: few, large steps."""
        compute = arrow().compute
        if table.num_rows < 2:
            return table
        known, parts = split(table)
        (name, ids), *_ = known.items()
        order = compute.sort_indices(ids).to_numpy().astype(np.int64)
        ids = ids.take(arrow().array(order))
        first = np.concatenate([[True], compute.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)])
        number = np.cumsum(first) - 1  # of the set
        place = np.arange(len(order)) - np.flatnonzero(first)[number]
        while place.any():
            left = np.flatnonzero((place[:-1] % 2 == 0) & (number[1:] == number[:-1]))
            a, b = order[left], order[left + 1]
            self._check_same(known, a, b)
            merged = self.net.state(select(parts, a)) + self.net.state(select(parts, b))
            for part_name, part in merged.parts.items():
                parts[part_name].index_copy_(0, torch.from_numpy(a), part)
            known[MEMBERS][a] += known[MEMBERS][b]
            keep = place % 2 == 0
            order, number, place = order[keep], number[keep], place[keep] // 2
        columns = {other: column[order] for other, column in list(known.items())[1:]}
        return join({name: ids.filter(arrow().array(first)), **columns}, select(parts, order))

    @staticmethod
    def _check_same(known: dict[str, Any], a: np.ndarray, b: np.ndarray) -> None:
        ids, _, *context = known.values()
        for name, column in zip(list(known)[2:], context, strict=True):
            differ = np.flatnonzero(column[a] != column[b])
            if len(differ):
                i, j = a[differ[0]], b[differ[0]]
                raise ValueError(
                    f"set {ids[int(i)].as_py()!r} has {name} = {column[i]} in one row and {column[j]} in another: a "
                    "column known of the set (z) needs one value per set."
                )


class Remove(Merge):
    """States of sets, and of members to be removed from them, to the states of what is left."""

    def __call__(self, table: Any, gone: Any = None) -> Any:
        """Remove `gone`, or by default the rows of `table` with negative ``members``, from the other states."""
        compute = arrow().compute
        if gone is None:
            negative = compute.less(table[MEMBERS], 0)
            table, gone = table.filter(compute.invert(negative)), negate(table.filter(negative))
        (known, parts), (taken, taken_parts) = (split(super(Remove, self).__call__(t)) for t in (table, gone))
        ids, names = (next(iter(each.values())) for each in (known, taken))
        found = compute.index_in(names, value_set=ids)
        if found.null_count:
            name = names[found.is_null().index(True).as_py()].as_py()
            raise ValueError(f"set {name!r} has no state from which members could be removed.")
        rows = found.to_numpy().astype(np.int64)
        members, minus = known[MEMBERS], taken[MEMBERS]
        few = np.flatnonzero(members[rows] < minus)
        if len(few):
            name, have, want = names[int(few[0])].as_py(), members[rows[few[0]]], minus[few[0]]
            raise ValueError(f"set {name!r} has {have} members, so {want} cannot be removed from it.")
        if len(rows):
            before = self.net.state(select(parts, rows))
            left, nothing = before - self.net.state(taken_parts), before - before  # no rounding errors in empty sets
            members[rows] -= minus
            for name, part in left.parts.items():
                empty = torch.from_numpy(members[rows] == 0).reshape(-1, *[1] * (part.ndim - 1))
                parts[name].index_copy_(0, torch.from_numpy(rows), torch.where(empty, nothing.parts[name], part))
        return join(known, parts)


class Decode(Function):
    """States to predictions."""

    def __call__(self, table: Any) -> Any:
        """Decode a table of states."""
        known, parts = split(table)
        (name, ids), _, *context = known.items()
        z = np.stack([column for _, column in context], axis=1) if context and self.net.plain else None
        return arrow().table({name: ids, **self.net.decode(parts, z)})


class Chain:
    """Functions of a table, one after another."""

    def __init__(self, *functions: Any) -> None:
        self.functions = functions

    def __call__(self, table: Any) -> Any:
        """Apply all functions."""
        return functools.reduce(lambda found, function: function(found), self.functions, table)


def encode(model: Any, *, by: str, features: Sequence[str] | None = None, z: Sequence[str] = ()) -> Encode:
    """Return a function from a table of rows to a table of partial states, one per set seen.

    Parameters
    ----------
    model : str, Path, SetClassifier, SetRegressor or DeepSet
        A fitted model, or the path or URI of a model folder, which is then loaded once per process.
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
        The model of :func:`encode`. Its pooling must be a sum underneath (sum, mean, sqrt, std).
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


def _pieces(sets: TableSets) -> Iterator[tuple[slice, TableSets]]:
    """Pieces of about `BATCH` members. Only where a set is larger than that are sets cut, with rows in two pieces."""
    if not isinstance(sets.X, Sets) or sets.sizes.max(initial=0) <= BATCH or (sets.sizes == 0).any():
        yield from _whole_pieces(sets, BATCH)
        return
    ends = np.cumsum(sets.sizes)
    for start in range(0, len(sets.X.values), BATCH):
        stop = min(start + BATCH, int(ends[-1]))
        which = slice(int(np.searchsorted(ends, start, side="right")), int(np.searchsorted(ends, stop)) + 1)
        offsets = np.concatenate([[start], ends[which].clip(max=stop)]) - start
        X = Sets.unchecked(sets.X.values[start:stop], torch.from_numpy(offsets))
        z = None if sets.z is None else sets.z[which]
        yield which, TableSets(X, np.diff(offsets), sets.ids[which], z, [], True)


def _whole_pieces(sets: TableSets, members: int) -> Iterator[tuple[slice, TableSets]]:
    """Whole sets with about `members` members together."""
    share = (np.cumsum(sets.sizes) - 1).clip(min=0) // members
    cuts = [0, *(np.flatnonzero(np.diff(share)) + 1).tolist(), len(sets)]
    for which in map(slice, cuts[:-1], cuts[1:]):
        z = None if sets.z is None else sets.z[which]
        yield which, TableSets(sets.X[which], sets.sizes[which], sets.ids[which], z, [], True)
