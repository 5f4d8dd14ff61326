"""Tables of states: one row per set.

The first column is the name of the set, then come ``members`` (the number of rows in it), the columns known of the set
(z), and one column ``state.…`` for each part of the state.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..io.storage import arrow

MEMBERS, PREFIX = "members", "state."
NUMBER, TABLE = "number", "table"  # columns of packed tables
Parts = dict[str, Tensor]


def merge_states(net: Any, table: Any) -> Any:
    """Merge to one state per set, sorted by name: in pairs of neighbours until one is left, few and large steps."""
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
        _check_same(known, a, b)
        merged = net.state(_select(parts, a)) + net.state(_select(parts, b))
        for part_name, part in merged.parts.items():
            parts[part_name].index_copy_(0, torch.from_numpy(a), part)
        known[MEMBERS][a] += known[MEMBERS][b]
        keep = place % 2 == 0
        order, number, place = order[keep], number[keep], place[keep] // 2
    columns = {other: column[order] for other, column in list(known.items())[1:]}
    return join({name: ids.filter(arrow().array(first)), **columns}, _select(parts, order))


def remove_states(net: Any, table: Any, gone: Any = None) -> Any:
    """Remove `gone`, or by default the rows of `table` with negative ``members``, from the other states."""
    compute = arrow().compute
    if gone is None:
        negative = compute.less(table[MEMBERS], 0)
        table, gone = table.filter(compute.invert(negative)), negate(table.filter(negative))
    (known, parts), (taken, taken_parts) = (split(merge_states(net, each)) for each in (table, gone))
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
        before = net.state(_select(parts, rows))
        left, nothing = before - net.state(taken_parts), before - before  # no rounding errors in empty sets
        members[rows] -= minus
        for name, part in left.parts.items():
            empty = torch.from_numpy(members[rows] == 0).reshape(-1, *[1] * (part.ndim - 1))
            parts[name].index_copy_(0, torch.from_numpy(rows), torch.where(empty, nothing.parts[name], part))
    return join(known, parts)


def negate(states: Any) -> Any:
    """Mark states as to be removed, by the sign of ``members``, or the reverse."""
    return states.set_column(1, MEMBERS, arrow().compute.negate(states[MEMBERS]))


def join(known: dict[str, Any], parts: Parts) -> Any:
    """A table of states: columns known of the sets, and the parts of their states as lists of fixed size."""
    pa = arrow()
    columns = dict(known)
    for name, part in parts.items():
        array = pa.array(part.reshape(-1).numpy())
        for axis in range(part.ndim - 1, 0, -1):
            if part.shape[axis] == 0:  # which lists of fixed size cannot have
                array = pa.ListArray.from_arrays(np.zeros(part.shape[:axis].numel() + 1, np.int32), array)
                continue
            # Numbers that cannot be null are read four times as fast from Parquet.
            kind = pa.list_(pa.field("element", array.type, nullable=False), part.shape[axis])
            array = pa.FixedSizeListArray.from_arrays(array, type=kind)
        columns[PREFIX + name] = array
    return pa.table(columns)


def split(table: Any) -> tuple[dict[str, Any], Parts]:
    """The reverse, for lists of any kind: names as an Arrow array, members and z as arrays, parts as tensors."""
    names = [name for name in table.column_names if not name.startswith(PREFIX)]
    known = {names[0]: _combined(table.column(0))} | {name: np.array(table[name].to_numpy()) for name in names[1:]}
    parts: Parts = {}
    for name in table.column_names[len(names) :]:
        chunks = list(table[name].chunks) or [arrow().array([], table[name].type)]
        shape = [len(table)]
        while hasattr(chunks[0].type, "value_type"):
            rows, chunks = sum(map(len, chunks)), [chunk.flatten() for chunk in chunks]
            shape.append(sum(map(len, chunks)) // max(rows, 1))
        flat = np.concatenate([chunk.to_numpy(zero_copy_only=False) for chunk in chunks])
        parts[name.removeprefix(PREFIX)] = torch.from_numpy(flat.reshape(shape))
    return known, parts


def hashes(ids: Any) -> np.ndarray:
    """Return 32 evenly distributed bits for each name of a set, the same in every process."""
    ids = _combined(ids)
    if arrow().types.is_integer(ids.type):
        bits = ids.to_numpy().astype(np.uint64)
    else:
        bits = np.fromiter((zlib.crc32(str(name).encode()) for name in ids.to_pylist()), np.uint64, len(ids))
    bits = (bits ^ (bits >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    return ((bits ^ (bits >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(32)).astype(np.int64)


def pack(number: int, table: Any) -> Any:
    """Return a table as one row: a number, and the bytes of an Arrow stream."""
    sink = arrow().BufferOutputStream()
    with arrow().ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return arrow().table({NUMBER: [number], TABLE: [sink.getvalue().to_pybytes()]})


def unpack(packed: Any) -> Any:
    """Return the rows of all packed tables as one table."""
    tables = [arrow().ipc.open_stream(each.as_buffer()).read_all() for each in packed[TABLE]]
    return arrow().concat_tables(tables, promote_options="permissive")


def _select(parts: Parts, rows: np.ndarray) -> Parts:
    return {name: part.index_select(0, torch.from_numpy(rows)) for name, part in parts.items()}


def _combined(column: Any) -> Any:
    chunks = column.chunks if isinstance(column, arrow().ChunkedArray) else [column]
    return arrow().concat_arrays(chunks) if chunks else arrow().array([], column.type)


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
