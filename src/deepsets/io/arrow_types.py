"""Arrow types as tables of sets use them: encodings decoded, numbers recognised, the rest refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np


class TableError(ValueError):
    """A table that cannot be read or written, or whose contents cannot be used."""


def arrow() -> Any:
    """Import pyarrow with the submodules that tables need.

    Returns
    -------
    module
        The package ``pyarrow``.
    """
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.dataset
        import pyarrow.json
        import pyarrow.parquet
    except ImportError:
        raise ImportError("reading and writing tables needs pyarrow: pip install 'deepsets[data]'.") from None
    return pyarrow


def plain_type(kind: Any) -> Any:
    """Return the type of a column after decoding: encodings of values are not visible to the rest of the package.

    Parameters
    ----------
    kind : pyarrow.DataType
        The type as stored, such as a dictionary, a run-end encoding or a view.
    """
    pa = arrow()
    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if types.is_string_view(kind):
        return pa.string()
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.large_list(plain_type(kind.value_type))
    if types.is_large_list(kind) or types.is_list(kind):
        inner = plain_type(kind.value_type)
        make = pa.large_list if types.is_large_list(kind) else pa.list_
        return kind if inner == kind.value_type else make(inner)
    return kind


def decode(column: Any, kind: Any) -> Any:
    """Decode a column to a plain type.

    Parameters
    ----------
    column : pyarrow.Array or pyarrow.ChunkedArray
        The column as stored.
    kind : pyarrow.DataType
        The result of :func:`plain_type` for its type.
    """
    pa = arrow()
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([decode(chunk, kind) for chunk in column.chunks], kind)
    if column.type == kind:
        return column
    if isinstance(column.type, pa.BaseExtensionType):
        return decode(column.storage, kind)
    if pa.types.is_run_end_encoded(column.type):
        return decode(pa.compute.run_end_decode(column), kind)
    if pa.types.is_dictionary(column.type):
        return decode(column.dictionary_decode(), kind)
    return column.cast(kind)


def to_integers(column: Any) -> Any:
    """Convert a text column to 64-bit integers, or return None where a text is not the plain form of one.

    Parameters
    ----------
    column : pyarrow.Array or pyarrow.ChunkedArray
        Text such as ``"17"``; ``"017"``, ``"1e3"`` and ``"9223372036854775808"`` stay text.
    """
    pa = arrow()
    if not pa.types.is_string(column.type):
        return None
    try:
        numbers = column.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    same = pa.compute.all(pa.compute.equal(numbers.cast(pa.string()), column))
    return numbers if same.as_py() is not False else None


def is_list(kind: Any) -> bool:
    """Return whether an Arrow type is a list of variable length.

    Parameters
    ----------
    kind : pyarrow.DataType
        Any type.
    """
    types = arrow().types
    return types.is_list(kind) or types.is_large_list(kind)


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is text.

    Parameters
    ----------
    kind : pyarrow.DataType
        Any type.
    """
    types = arrow().types
    return types.is_string(kind) or types.is_large_string(kind)


def is_number(kind: Any) -> bool:
    """Return whether an Arrow type holds numbers, booleans, or nothing but nulls.

    Parameters
    ----------
    kind : pyarrow.DataType
        Any type.
    """
    types = arrow().types
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def is_single(kind: Any) -> bool:
    """Return whether an Arrow type holds single values that tables of sets can use: numbers, text, dates and times.

    Parameters
    ----------
    kind : pyarrow.DataType
        Any type.
    """
    types = arrow().types
    times = types.is_date(kind) or types.is_timestamp(kind) or types.is_time(kind) or types.is_duration(kind)
    return is_number(kind) or is_text(kind) or times


def numbers(column: Any, name: str) -> np.ndarray:
    """Convert an Arrow column to float64, with NaN for null.

    Parameters
    ----------
    column : pyarrow.Array
        Integers, floats, booleans or decimals.
    name : str
        Its name, for the error message.
    """
    pa = arrow()
    if not is_number(column.type):
        shown = next((str(v) for v in column.slice(0, 100).to_pylist() if v is not None), "")
        raise TableError(
            f"column {name!r} must hold numbers, but it holds {column.type} such as {shown!r}: leave it out of the "
            "features. A text column that is the only feature is learned as tokens."
        )
    return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
