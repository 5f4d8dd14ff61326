"""Arrow list columns to sets and back, without copying where Arrow's layout allows it."""

from __future__ import annotations

from typing import Any, NoReturn, Self

import numpy as np
import torch

from .ragged import Ragged


class ArrowConversions(Ragged):
    """Conversions from and to Arrow, and whatever speaks its C data interface."""

    @classmethod
    def from_arrow(cls, column: Any, *, ensure_finite: bool = True) -> Self:
        """Build a batch from an Arrow list column, one list per set. Numbers of one chunk are shared, not copied.

        Parameters
        ----------
        column : pyarrow array or chunked array, or any object with ``__arrow_c_stream__`` or ``__arrow_c_array__``
            For example a polars Series, or a DuckDB relation with one column; of a Hugging Face data set
            ``data.with_format("arrow")["points"][:]``. The type is a list (large, fixed-size) of numbers, of lists of
            numbers of one length, or of structs of numbers, whose fields become the features.
        ensure_finite : bool, default=True
            Whether NaN and infinity are errors.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from deepsets import Sets
        >>> Sets.from_arrow(pa.array([[{"x": 1.0, "y": 2.0}], []]))
        Sets(2 sets, 1 elements of 2 features, sizes 0..1, float64)
        """
        import pyarrow as pa

        array = _import(column)
        kind = array.type
        if not any(
            is_list(kind) for is_list in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
        ):
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
        return cls(_elements(elements, offsets), offsets, ensure_finite=ensure_finite)

    def to_arrow(self) -> Any:
        """Return an Arrow list array, ``large_list`` of numbers or fixed-size lists. Shares values in CPU memory."""
        import pyarrow as pa

        sets = self.materialize().cpu()
        flat = pa.array(sets.values.detach().contiguous().reshape(-1).numpy())
        for size in reversed(sets.values.shape[1:]):
            flat = pa.FixedSizeListArray.from_arrays(flat, size)
        return pa.LargeListArray.from_arrays(pa.array(sets.offsets.numpy()), flat)


def _import(column: Any) -> Any:
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
        column = column.chunk(0) if column.num_chunks == 1 else _joined(column)
    return _storage(column)


def _joined(column: Any) -> Any:
    import pyarrow as pa

    chunks = [_storage(chunk) for chunk in column.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def _storage(array: Any) -> Any:
    """The plain array behind an extension type."""
    import pyarrow as pa

    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array


def _elements(values: Any, offsets: torch.Tensor) -> torch.Tensor:
    """Arrow numbers, structs of numbers, or (nested) lists of numbers of one length, as a tensor (N, ...)."""
    import pyarrow as pa

    shape: list[int] = []
    values = _storage(values)
    while pa.types.is_nested(values.type) and not pa.types.is_struct(values.type):
        if values.null_count:
            _refuse_null(values, shape, offsets)
        shape.append(_one_length(values, shape, offsets))
        values = _storage(values.flatten())
    if pa.types.is_struct(values.type) and values.type.num_fields:
        if values.null_count:
            _refuse_null(values, shape, offsets)
        fields = [_numbers(_storage(field), shape, offsets) for field in values.flatten()]
        kind = np.result_type(*(field.numpy().dtype for field in fields))
        joined = torch.stack([torch.from_numpy(field.numpy().astype(kind)) for field in fields], dim=-1)
        return joined.reshape(-1, *shape, len(fields))
    tensor = _numbers(values, shape, offsets)
    return tensor.reshape(-1, *shape) if shape else tensor


def _one_length(lists: Any, shape: list[int], offsets: torch.Tensor) -> int:
    import pyarrow as pa

    if pa.types.is_fixed_size_list(lists.type):
        return int(lists.type.list_size)
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        raise ValueError(f"elements must be numbers, lists or structs of numbers, found {lists.type}.")
    lengths = lists.value_lengths().to_numpy()
    other = (lengths != lengths[0]).nonzero()[0] if len(lengths) else []
    if len(other):
        b, n = _place(int(other[0]), shape, offsets)
        raise ValueError(
            f"set {b}, element {n} has {lengths[other[0]]} numbers, but the first element has {lengths[0]}: all "
            "elements need the same number of features."
        )
    return int(lengths[0]) if len(lengths) else 1


def _numbers(values: Any, shape: list[int], offsets: torch.Tensor) -> torch.Tensor:
    import pyarrow as pa

    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise ValueError(
            f"elements must be numbers, or lists or structs of numbers, found {values.type}. For tokens: Sets.from_ids."
        )
    if values.null_count:
        _refuse_null(values, shape, offsets)
    return torch.from_dlpack(values)  # shares Arrow's memory: a batch is never written to in place


def _place(row: int, shape: list[int], offsets: torch.Tensor) -> tuple[int, int]:
    """Set and element of a row of the flattened values."""
    row //= int(np.prod(shape, initial=1))
    b = int(torch.searchsorted(offsets, row, right=True)) - 1
    return b, row - int(offsets[b])


def _refuse_null(values: Any, shape: list[int], offsets: torch.Tensor) -> NoReturn:
    b, n = _place(values.is_null().index(True).as_py(), shape, offsets)
    raise ValueError(f"set {b}, element {n} holds a null; impute or drop it first.")
