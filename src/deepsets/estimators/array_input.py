"""Lists, arrays, tokens, records and Arrow list columns as members."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..sets import Sets, flatten_arrays, is_missing
from .columns import Category, Columns, factorize, from_values, read_columns
from .layout import Members, Schema

_REAL = "Give the real and the imaginary part as two features."
TOKEN = "token"  # name of the one column of a set of tokens


def from_sets(sets: Sets) -> Members:
    """Read a batch of sets."""
    sets = sets.materialize().to("cpu")
    values, offsets = sets.values.detach(), sets.offsets.numpy()
    weights = None if sets.weights is None else sets.weights.double().numpy()
    if values.ndim == 1 and not values.is_floating_point():  # plain integers are ids, as in a list
        columns = _tokens(values.numpy())
    else:
        columns = _matrix(values.reshape(len(values), int(np.prod(values.shape[1:]))).double().numpy(), offsets)
    return Members(columns, offsets, None, weights)


def _matrix(values: np.ndarray, offsets: np.ndarray) -> Columns:
    infinite = np.isinf(values)
    if infinite.any():
        row, column = (int(i) for i in np.argwhere(infinite)[0])
        b = int(np.searchsorted(offsets, row, side="right")) - 1
        raise ValueError(
            f"features must be finite or missing (NaN): set {b}, member {row - int(offsets[b])}, feature {column} is "
            f"{values[row, column]}."
        )
    return Columns(values, [])


def _tokens(flat: np.ndarray) -> Columns:
    return Columns(np.zeros((len(flat), 0)), [factorize(flat)], [], [TOKEN], [(TOKEN, "category")])


def parse_arrow(column: Any, schema: Schema) -> Members:
    """Read an Arrow list column of numbers, strings or structs."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    column.validate(full=True)
    inner = getattr(column.type, "value_type", None)
    if inner is None:
        raise ValueError(f"X is an Arrow column of {column.type}; wanted a list column, one list of members per set.")
    if pa.types.is_struct(inner):
        if column.null_count:
            raise ValueError(f"row {column.is_null().index(True).as_py()} of X is null: an empty set is an empty list.")
        flat = column.flatten()
        table = pa.table({field.name: flat.field(i) for i, field in enumerate(inner)})
        names = list(schema.columns) if schema.columns else [n for n in table.column_names if n not in schema.drop]
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        return Members(read_columns(table, names, schema.kinds), np.concatenate([[0], np.cumsum(lengths)]))
    if pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_dictionary(inner):
        return parse_list(column.to_pylist())
    return from_sets(Sets.from_arrow(column))


def parse_list(X: Any) -> Members:
    """Read a 3-D array, or a list of arrays, of lists of tokens or of lists of dicts."""
    if isinstance(X, np.ma.MaskedArray):
        X = np.ma.filled(X.astype(float), np.nan)
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu().numpy()
    elif hasattr(X, "__array__") and not hasattr(X, "__iter__"):
        X = np.asarray(X)
    if isinstance(X, np.ndarray) and X.dtype != object:
        if X.dtype.kind == "c":
            raise ValueError("Complex data not supported: X holds complex numbers. " + _REAL)
        if X.ndim != 3:
            raise ValueError(
                f"an array X must have the shape (sets, members, features), found {X.shape}: for sets of different "
                "sizes give a list of 2-D arrays; for one set per row write X[:, None, :]."
            )
        if len(X) == 0 or X.shape[2] == 0:
            raise ValueError(f"X has shape {X.shape}: it holds no sets, or members without features.")
        offsets = np.arange(len(X) + 1) * X.shape[1]
        return Members(_matrix(X.reshape(-1, X.shape[2]).astype(np.float64), offsets), offsets)
    if isinstance(X, str) or not hasattr(X, "__iter__"):
        raise ValueError(f"X is {X!r}; wanted a list of sets, one array (members, features) per set.")
    X = list(X)
    if not X:
        raise ValueError("X holds no sets.")
    if not hasattr(X[0], "__iter__") or getattr(X[0], "ndim", 1) == 0:
        raise ValueError(f"X is a list of single values ({X[0]!r}, …); wanted a list of sets, one array per set.")
    first = next((member for members in X for member in members), None)
    if (
        isinstance(first, str)
        or isinstance(X[0], str)
        or (first is not None and np.asarray(first).ndim == 0 and _are_ids(X))
    ):
        return _parse_tokens(X)
    if isinstance(first, dict):
        return _parse_records(X)
    return _parse_arrays(X)


def _parse_arrays(X: list[Any]) -> Members:
    arrays = []
    for b, given in enumerate(X):
        members = given
        if isinstance(members, np.ma.MaskedArray):
            members = np.ma.filled(members.astype(float), np.nan)
        if hasattr(members, "tocsr"):
            members = members.toarray()
        if not isinstance(members, torch.Tensor):
            try:
                members = np.asarray(members, dtype=np.complex128 if np.iscomplexobj(members) else np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"set {b} cannot be read as an array of numbers: {error}. For columns of different kinds give a "
                    "table with by=, or a list of lists of dicts."
                ) from None
        if np.iscomplexobj(members):
            raise ValueError(f"Complex data not supported: set {b} holds complex numbers. " + _REAL)
        arrays.append(members.detach().double().cpu() if isinstance(members, torch.Tensor) else members)
    values, offsets = flatten_arrays(arrays)
    flat, cuts = values.reshape(len(values), int(np.prod(values.shape[1:]))).numpy(), offsets.numpy()
    return Members(_matrix(flat.astype(np.float64), cuts), cuts)


def _parse_records(X: list[list[dict[str, Any]]]) -> Members:
    names = list(dict.fromkeys(name for members in X for member in members for name in member))
    flat = [member for members in X for member in members]
    each = []
    for name in names:
        values = np.empty(len(flat), dtype=object)
        values[:] = [member.get(name) for member in flat]
        each.append(from_values(values, name))
    offsets = np.concatenate([[0], np.cumsum([len(members) for members in X])])
    return Members(join_columns(each, names, len(flat)), offsets)


def _are_ids(X: list[Any]) -> bool:
    """Plain integers in a list are ids of discrete elements; one number per member is written (n, 1)."""
    return all(np.asarray(members).dtype.kind in "iu" for members in X if len(members))


def _parse_tokens(X: list[Any]) -> Members:
    for b, members in enumerate(X):
        if isinstance(members, str):
            raise ValueError(f"set {b} is the string {members!r}; wanted a list of tokens.")
    flat = np.empty(sum(len(members) for members in X), dtype=object)
    flat[:] = [m.item() if isinstance(m, np.generic | torch.Tensor) else m for members in X for m in members]
    offsets = np.concatenate([[0], np.cumsum([len(members) for members in X])])
    gone = is_missing(flat)
    if gone.any():
        members = Members(Columns(np.zeros((len(flat), 0)), []), offsets)
        raise ValueError(f"{members.where(int(gone.argmax()))} has no token (found {flat[gone][0]!r}): leave it out.")
    return Members(_tokens(flat), offsets)


def join_columns(each: list[tuple[str, Category | list[np.ndarray]]], names: list[str], count: int) -> Columns:
    """Columns that were read one by one, side by side."""
    numbers, categories, number_names, category_names = [], [], [], []
    for (kind, values), name in zip(each, names, strict=True):
        if isinstance(values, Category):
            categories.append(values)
            category_names.append(name)
        else:
            numbers += values
            number_names += [name] if kind == "number" else [name, f"{name}:hour", f"{name}:weekday"]
    matrix = np.stack(numbers, axis=1) if numbers else np.zeros((count, 0))
    schema = [(name, kind) for (kind, _), name in zip(each, names, strict=True)]
    return Columns(matrix, categories, number_names, category_names, schema)
