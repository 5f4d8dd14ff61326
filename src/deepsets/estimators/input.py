"""What users give as X and z, as members with columns of numbers and categories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..sets import Sets
from ..sets.arrays import flatten_arrays
from ..sets.tables import group_rows, is_missing
from .columns import (
    Columns,
    as_objects,
    as_table,
    column_names,
    factorize,
    from_values,
    join_columns,
    one_array,
    plain_column,
    read_columns,
)
from .layout import Members, Schema, place, to_offsets

_COMPLEX = "Complex data not supported: {} holds complex numbers. Give the real and the imaginary part as two features."
_TOKEN = "token"  # name of the one column of a set of tokens


def parse(X: Any, schema: Schema) -> Members:
    """Read any X as members with columns.

    Parameters
    ----------
    X : list of arrays, array of shape (sets, members, features), Sets, Arrow list column, table, AnnData, token lists
    schema : Schema

    """
    if X is None:
        raise ValueError("X is None: give a list of sets, one array (members, features) per set, or a table with by=.")
    if hasattr(X, "obs") and hasattr(X, "obsm"):
        return _parse_anndata(X, schema)
    if isinstance(X, Sets):
        return _parse_sets(X)
    if hasattr(X, "tocsr"):
        raise ValueError(
            f"X is a sparse matrix of shape {X.shape}, which does not say which rows are a set: give a list of dense "
            "arrays, one per set, or Sets.from_csr for rows that are weighted sets of tokens."
        )
    table = as_table(X)
    if table is not None:
        return _parse_table(table, schema)
    if type(X).__module__.startswith("awkward"):
        import awkward as ak

        return _parse_arrow(ak.to_arrow(X, list_to32=False, extensionarray=False), schema)
    if hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__"):
        return _parse_arrow(X, schema)
    return _parse_list(X, schema)


def parse_context(z: Any, members: Members, kinds: dict[str, str] | None = None) -> Columns | None:
    """Read set-level values: an array or table with one row per set."""
    if z is None:
        return members.context
    count = len(members)
    table = as_table(z)
    if table is not None:
        columns = read_columns(table, column_names(table), kinds)
    else:
        array = z if isinstance(z, np.ndarray) else np.asarray(z)
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2:
            raise ValueError(f"z must have one row for each of the {count} sets, found shape {array.shape}.")
        names = [f"z[{j}]" for j in range(array.shape[1])]
        if kinds and len(kinds) == len(names):  # an array in place of the named columns of fit
            names = list(kinds)
        each = [(n, *from_values(array[:, j], n, (kinds or {}).get(n))) for j, n in enumerate(names)]
        columns = join_columns(each, len(array))
    if len(columns) != count:
        raise ValueError(f"z must have one row for each of the {count} sets, found {len(columns)} rows.")
    return columns


def context_names(z: Any, X: Any) -> list[str] | None:
    """The names in `z` where it names columns of the table X."""
    z = [z] if isinstance(z, str) else z
    named = isinstance(z, list | tuple) and len(z) > 0 and all(isinstance(name, str) for name in z)
    return list(z) if named and (as_table(X) is not None or hasattr(X, "obs")) else None


# -------------------------------------------------------------------------------------------------------- tables


def _parse_table(X: Any, schema: Schema) -> Members:
    names = column_names(X)
    known = ", ".join(map(str, names))
    if not schema.by:
        raise ValueError(
            "X is a table with one row per member: name the column that identifies the set, "
            f"for example SetClassifier(by='cluster_id'). Columns: {known}."
        )
    keys = [schema.by] if isinstance(schema.by, str) else list(schema.by)
    for name in [*keys, *(schema.context or [])]:
        if name not in names:
            raise ValueError(f"the table has no column {name!r}; it has: {known}.")
    others = {*keys, *schema.drop, *(schema.context or [])}
    features = list(schema.columns) if schema.columns else [c for c in names if c not in others]
    if not features:
        raise ValueError(f"no feature columns are left beside {', '.join(map(str, keys))}; the table has: {known}.")
    if (X.num_rows if hasattr(X, "num_rows") else len(X)) == 0:
        raise ValueError("the table has no rows, so there are no sets.")
    members = _group(X, read_columns(X, features, schema.kinds), keys[0], schema)
    return _pool_inner(X, keys[1:], members) if len(keys) > 1 else members


def _parse_anndata(X: Any, schema: Schema) -> Members:
    if not isinstance(schema.by, str):
        raise ValueError(
            f"X is AnnData: name the column of obs that identifies the set, by=. Columns: {list(X.obs.columns)}."
        )
    names = [str(name) for name in (X.var_names if schema.columns is None else schema.columns)]
    for name in names:
        if name not in X.var_names:
            raise ValueError(f"X is AnnData without the variable {name!r}; it has {len(X.var_names)} others.")
    cells = X if schema.columns is None else X[:, names]
    matrix = cells.X.toarray() if hasattr(cells.X, "toarray") else np.asarray(cells.X)
    columns = Columns(matrix.astype(np.float64), [], names, [], [(name, "number") for name in names])
    return _group(X.obs, columns, schema.by, schema)


def _group(table: Any, columns: Columns, key: str, schema: Schema) -> Members:
    """Group the rows of a table into sets; `columns` are its features."""
    owners = plain_column(table, key)
    order, cuts = group_rows([owners], [key])
    offsets = cuts.numpy()
    context = None
    if schema.context:
        whole = read_columns(table, schema.context, schema.kinds).take(order)
        _check_constant(whole, offsets)
        context = whole.take(offsets[:-1])
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return Members(columns.take(order), offsets, order, None, context, owners[order][offsets[:-1]], numbers)


def _pool_inner(X: Any, keys: list[str], members: Members) -> Members:
    """Sets of sets: the groups of the inner columns become members, described by their summaries."""
    from .summaries import describe

    inner = [plain_column(X, key)[members.rows] for key in keys]
    order, cuts = group_rows([members.set_ids.astype(np.int64), *inner], ["set", *keys])
    offsets = cuts.numpy()
    owner = members.set_ids[order][offsets[:-1]]
    groups = Members(members.columns.take(order), offsets)
    counts = np.bincount(owner, minlength=len(members))
    return Members(describe(groups), to_offsets(counts), context=members.context, owners=members.owners)


def _check_constant(columns: Columns, offsets: np.ndarray) -> None:
    values = [*columns.numbers.T, *(c.codes for c in columns.categories)]
    names = (columns.number_names or []) + (columns.category_names or [])
    for name, column in zip(names, values, strict=True):
        first = np.repeat(column[offsets[:-1]], np.diff(offsets))
        same = (column == first) | ((column != column) & (first != first))  # noqa: PLR0124
        if not same.all():
            bad = int(np.searchsorted(offsets, int(np.argmin(same)), side="right")) - 1
            raise ValueError(
                f"the set-level column {name!r} must have one value per set, but it changes within set {bad}: "
                "use it as a feature of the members."
            )


# ---------------------------------------------------------------------------------------- arrays, tokens, records


def _parse_sets(sets: Sets) -> Members:
    sets = sets.materialize().to("cpu")
    values, offsets = sets.values.detach(), sets.offsets.numpy()
    weights = None if sets.weights is None else sets.weights.double().numpy()
    if values.ndim == 1 and not values.is_floating_point():  # plain integers are ids, as in a list
        return Members(_tokens(values.numpy()), offsets, None, weights)
    return Members(_matrix(values.double().numpy(), offsets), offsets, None, weights)


def _matrix(values: np.ndarray, offsets: np.ndarray) -> Columns:
    values = values.reshape(len(values), int(np.prod(values.shape[1:])))
    infinite = np.isinf(values)
    if infinite.any():
        row, column = (int(i) for i in np.argwhere(infinite)[0])
        raise ValueError(
            f"features must be finite or missing (NaN): {place(row, offsets)}, feature {column} is "
            f"{values[row, column]}."
        )
    return Columns(values, [])


def _tokens(flat: np.ndarray) -> Columns:
    return Columns(np.zeros((len(flat), 0)), [factorize(flat)], [], [_TOKEN], [(_TOKEN, "category")])


def _parse_arrow(column: Any, schema: Schema) -> Members:
    """Read an Arrow list column of numbers, strings or structs."""
    import pyarrow as pa

    if not hasattr(column, "type"):
        column = pa.array(column) if hasattr(column, "__arrow_c_array__") else pa.chunked_array(column)
    column = one_array(column)
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
        return Members(read_columns(table, names, schema.kinds), to_offsets(lengths))
    if pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_dictionary(inner):
        return _parse_list(column.to_pylist(), schema)
    return _parse_sets(Sets.from_arrow(column))


def _parse_list(X: Any, schema: Schema) -> Members:
    """Read a 3-D array, or a list of arrays, of lists of tokens or of lists of dicts."""
    X = _without_mask(X)
    if isinstance(X, np.ndarray) and X.dtype == object and X.shape[1:] == (1,):  # Sets as scikit-learn passes them on
        X = X[:, 0]
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu().numpy()
    elif hasattr(X, "__array__") and not hasattr(X, "__iter__"):
        X = np.asarray(X)
    if isinstance(X, np.ndarray) and X.dtype != object:
        if X.dtype.kind == "c":
            raise ValueError(_COMPLEX.format("X"))
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
    X = [members.toarray() if hasattr(members, "tocsr") else members for members in X]
    if not X:
        raise ValueError("X holds no sets.")
    if not hasattr(X[0], "__iter__") or getattr(X[0], "ndim", 1) == 0:
        raise ValueError(f"X is a list of single values ({X[0]!r}, …); wanted a list of sets, one array per set.")
    first = next((member for members in X for member in members), None)
    single = first is not None and np.asarray(first).ndim == 0
    if isinstance(first, str) or isinstance(X[0], str) or (single and _are_ids(X)):
        return _parse_tokens(X)
    return _parse_records(X, schema) if isinstance(first, dict) else _parse_arrays(X)


def _without_mask(array: Any) -> Any:
    return np.ma.filled(array.astype(float), np.nan) if isinstance(array, np.ma.MaskedArray) else array


def _parse_arrays(X: list[Any]) -> Members:
    arrays = []
    for b, given in enumerate(X):
        members = _without_mask(given)
        if isinstance(members, torch.Tensor):
            members = members.detach().cpu().numpy()
        if np.iscomplexobj(members):
            raise ValueError(_COMPLEX.format(f"set {b}"))
        try:
            arrays.append(np.asarray(members, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"set {b} cannot be read as an array of numbers: {error}. For columns of different kinds give a "
                "table with by=, or a list of lists of dicts."
            ) from None
    values, cuts = (part.numpy() for part in flatten_arrays(arrays))
    return Members(_matrix(values, cuts), cuts)


def _parse_records(X: list[list[dict[str, Any]]], schema: Schema) -> Members:
    flat = [member for members in X for member in members]
    names = schema.columns or [n for n in dict.fromkeys(n for member in flat for n in member) if n not in schema.drop]
    kinds = schema.kinds or {}
    each = [(n, *from_values(as_objects([member.get(n) for member in flat]), n, kinds.get(n))) for n in names]
    return Members(join_columns(each, len(flat)), to_offsets([len(members) for members in X]))


def _are_ids(X: list[Any]) -> bool:
    """Plain integers in a list are ids of discrete elements; one number per member is written (n, 1)."""
    return all(np.asarray(members).dtype.kind in "iu" for members in X if len(members))


def _parse_tokens(X: list[Sequence[Any]]) -> Members:
    for b, members in enumerate(X):
        if isinstance(members, str):
            raise ValueError(f"set {b} is the string {members!r}; wanted a list of tokens.")
    flat = as_objects([m.item() if isinstance(m, np.generic | torch.Tensor) else m for members in X for m in members])
    offsets = to_offsets([len(members) for members in X])
    gone = is_missing(flat)
    if gone.any():
        raise ValueError(f"{place(int(gone.argmax()), offsets)} has no token (found {flat[gone][0]!r}): leave it out.")
    return Members(_tokens(flat), offsets)
