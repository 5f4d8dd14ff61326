"""Arrow list columns to sets and back, without copying where Arrow's layout allows it."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import torch

from .ragged import Sets


def from_arrow(column: Any) -> Sets:
    """See `Sets.from_arrow`."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # pyarrow gives back a chunked array when there are no chunks
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if not isinstance(column, pa.Array):
        raise ValueError(f"wanted an Arrow array or chunked array, found {type(column).__name__}.")
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise ValueError(f"wanted an Arrow list column (list<…> or large_list<…>), found {kind}.")
    if column.null_count:
        where = column.is_null().index(True).as_py()
        raise ValueError(f"set {where} is null: an empty list is an empty set, null is not a set.")
    offsets = torch.from_numpy(np.array(column.offsets, dtype=np.int64))
    start, stop = int(offsets[0]), int(offsets[-1])
    return Sets(_elements(column.values[start:stop], offsets - start), offsets - start)


def _elements(values: Any, offsets: torch.Tensor) -> torch.Tensor:
    """Arrow numbers, or (nested) fixed-size lists of numbers, as a tensor (N, ...)."""
    import pyarrow as pa

    shape: list[int] = []
    while pa.types.is_fixed_size_list(values.type):
        shape.append(values.type.list_size)
        if values.null_count:
            _refuse_null(values, shape[:-1], offsets)
        values = values.flatten()
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise ValueError(
            f"elements must be numbers or fixed-size lists of numbers, found {values.type}. For tokens: Sets.from_ids."
        )
    if values.null_count:
        _refuse_null(values, shape, offsets)
    tensor = torch.from_dlpack(values)  # shares Arrow's memory: a batch is never written to in place
    return tensor.reshape(-1, *shape) if shape else tensor


def _refuse_null(values: Any, shape: list[int], offsets: torch.Tensor) -> NoReturn:
    row = values.is_null().index(True).as_py() // int(np.prod(shape, initial=1))
    b = int(torch.searchsorted(offsets, row, right=True)) - 1
    raise ValueError(f"set {b}, element {row - int(offsets[b])} holds a null; impute or drop it first.")


def to_arrow(sets: Sets) -> Any:
    """See `Sets.to_arrow`."""
    import pyarrow as pa

    sets = sets.materialize().to("cpu")
    flat = pa.array(sets.values.detach().contiguous().reshape(-1).numpy())
    for size in reversed(sets.values.shape[1:]):
        flat = pa.FixedSizeListArray.from_arrays(flat, size)
    return pa.LargeListArray.from_arrays(pa.array(sets.offsets.numpy()), flat)
