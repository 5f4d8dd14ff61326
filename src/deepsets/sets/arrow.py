"""Arrow list columns as flat values and offsets, without copying where Arrow's layout allows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .validation import place


def read_lists(column: Any) -> tuple[Tensor, Tensor]:
    """Read an Arrow list column; see :meth:`Sets.from_arrow`."""
    import pyarrow as pa

    array = _as_array(column)
    kind = array.type
    if not _is_list(kind):
        raise ValueError(f"expected an Arrow list column (list<…> or large_list<…>), found {kind}.")
    array.validate(full=True)  # a file may hold any offsets; reading along them must not leave the buffers
    if array.null_count:
        where = array.is_null().index(True).as_py()
        raise ValueError(f"set {where} is null: an empty list is an empty set, null is not a set.")
    if pa.types.is_fixed_size_list(kind):
        offsets, elements = torch.arange(len(array) + 1) * kind.list_size, array.flatten()
    else:
        offsets = torch.from_numpy(np.array(array.offsets, dtype=np.int64))
        start, stop = int(offsets[0]), int(offsets[-1])
        offsets, elements = offsets - start, array.values[start:stop]
    return _elements(elements, offsets), offsets


def _as_array(column: Any) -> Any:
    """One Arrow array, from a column of any library or a table with a single column."""
    import pyarrow as pa

    if not isinstance(column, pa.Array | pa.ChunkedArray | pa.Table | pa.RecordBatch):
        if hasattr(column, "__arrow_c_stream__"):
            column = pa.chunked_array(column)
        elif hasattr(column, "__arrow_c_array__"):
            column = pa.array(column)
        else:
            raise ValueError(
                "expected an Arrow array or chunked array, or an object with __arrow_c_stream__ or __arrow_c_array__; "
                f"found {type(column).__name__}."
            )
        if pa.types.is_struct(column.type):  # the stream of a table
            column = pa.Table.from_struct_array(column)
    if isinstance(column, pa.Table | pa.RecordBatch):
        if column.num_columns != 1:
            raise ValueError(
                f"found a table with the columns {', '.join(column.column_names)}: choose its list column first. "
                "A table with one row per element is read by Sets.from_frame."
            )
        column = column.column(0)
    if isinstance(column, pa.ChunkedArray):
        chunks = [_storage(chunk) for chunk in column.chunks] or [pa.array([], column.type)]
        column = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    return _storage(column)


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return any(check(kind) for check in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def _storage(array: Any) -> Any:
    """The plain array behind an extension type."""
    return _storage(array.storage) if hasattr(array, "storage") else array


def _elements(values: Any, offsets: Tensor) -> Tensor:
    """Arrow numbers, structs of numbers, or (nested) lists of numbers of one length, as a tensor (N, ...)."""
    import pyarrow as pa

    types, values = pa.types, _storage(values)
    shape: list[int] = []

    def where(row: int) -> str:
        return place(row // int(np.prod(shape, initial=1)), offsets)

    def refuse_null(array: Any) -> None:
        if array.null_count:
            raise ValueError(f"{where(array.is_null().index(True).as_py())} holds a null; impute or drop it first.")

    while types.is_nested(values.type) and not types.is_struct(values.type):
        refuse_null(values)
        if not _is_list(values.type):
            raise ValueError(f"elements must be numbers, lists or structs of numbers, found {values.type}.")
        lengths = values.value_lengths().to_numpy()
        width = int(lengths[0]) if len(lengths) else getattr(values.type, "list_size", 1)
        if (lengths != width).any():
            other = int((lengths != width).argmax())
            raise ValueError(
                f"{where(other)} has {lengths[other]} numbers, but the first element has {width}: all "
                "elements need the same number of features."
            )
        shape.append(width)
        values = _storage(values.flatten())
    columns = [values]
    if types.is_struct(values.type) and values.type.num_fields:
        refuse_null(values)
        columns = [_storage(field) for field in values.flatten()]
    tensors = []
    for column in columns:
        kind = column.type
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            raise ValueError(
                f"elements must be numbers, or lists or structs of numbers, found {kind}. For tokens: Sets.from_ids."
            )
        refuse_null(column)
        # The tensor shares Arrow's memory: a batch is never written to in place.
        tensors.append(torch.from_dlpack(column.cast(pa.uint8()) if types.is_boolean(kind) else column))
    if columns[0] is values:
        return tensors[0].reshape(-1, *shape) if shape else tensors[0]
    common = np.result_type(*(t.numpy().dtype for t in tensors))
    joined = np.stack([t.numpy().astype(common) for t in tensors], axis=-1)
    return torch.from_numpy(joined).reshape(-1, *shape, len(columns))
