"""Tables of states: one row per set.

The first column is the name of the set, then come ``members`` (the number of rows in it), the columns known of the set
(z), and one column ``state.…`` for each part of the state.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch

from ..io.storage import arrow
from .model import Parts

MEMBERS, PREFIX = "members", "state."


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
    known = {names[0]: combined(table.column(0))} | {name: np.array(table[name].to_numpy()) for name in names[1:]}
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


def select(parts: Parts, rows: np.ndarray) -> Parts:
    """Return the parts of some sets."""
    return {name: part.index_select(0, torch.from_numpy(rows)) for name, part in parts.items()}


def combined(column: Any) -> Any:
    """Return a column as one array."""
    chunks = column.chunks if isinstance(column, arrow().ChunkedArray) else [column]
    return arrow().concat_arrays(chunks) if chunks else arrow().array([], column.type)


def negate(states: Any) -> Any:
    """Mark states as to be removed, by the sign of ``members``, or the reverse."""
    return states.set_column(1, MEMBERS, arrow().compute.negate(states[MEMBERS]))


def hashes(ids: Any) -> np.ndarray:
    """Return 32 evenly distributed bits for each name of a set, the same in every process."""
    ids = combined(ids)
    if arrow().types.is_integer(ids.type):
        bits = ids.to_numpy().astype(np.uint64)
    else:
        bits = np.fromiter((zlib.crc32(str(name).encode()) for name in ids.to_pylist()), np.uint64, len(ids))
    bits = (bits ^ (bits >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    return ((bits ^ (bits >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(32)).astype(np.int64)
