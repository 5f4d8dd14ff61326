"""What users give as X and z, as members with columns of numbers and categories."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..sets import Sets, group_rows
from .array_input import from_sets, join_columns, parse_arrow, parse_list
from .columns import Columns, column_names, from_values, plain_column, read_columns
from .layout import Members, Schema


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
        return from_sets(X)
    if hasattr(X, "tocsr"):
        raise ValueError(
            f"X is a sparse matrix of shape {X.shape}, which does not say which rows are a set: give a list of dense "
            "arrays, one per set, or Sets.from_csr for rows that are weighted sets of tokens."
        )
    if _is_table(X):
        return _parse_table(X, schema)
    if hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__"):
        import pyarrow as pa

        if not hasattr(X, "type"):
            X = pa.array(X) if hasattr(X, "__arrow_c_array__") else pa.chunked_array(X)
        return parse_arrow(X, schema)
    return parse_list(X)


def parse_context(z: Any, X: Any, members: Members, kinds: dict[str, str] | None = None) -> Columns | None:
    """Read set-level values: an array or table with one row per set."""
    if z is None:
        return members.context
    count = len(members)
    if _is_table(z):
        columns = read_columns(z, column_names(z), kinds)
    else:
        array = z if isinstance(z, np.ndarray) else np.asarray(z)
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2:
            raise ValueError(f"z must have one row for each of the {count} sets, found shape {array.shape}.")
        each = [
            from_values(array[:, j], f"z[{j}]", None if kinds is None else kinds.get(f"z[{j}]"))
            for j in range(array.shape[1])
        ]
        names = [f"z[{j}]" for j in range(array.shape[1])]
        columns = join_columns(each, names, len(array))
    if len(columns) != count:
        raise ValueError(f"z must have one row for each of the {count} sets, found {len(columns)} rows.")
    return columns


def context_names(z: Any, X: Any) -> list[str] | None:
    """The names in `z` where it names columns of the table X."""
    if isinstance(z, str):
        z = [z]
    if isinstance(z, list | tuple) and z and all(isinstance(name, str) for name in z):
        if _is_table(X) or hasattr(X, "obs"):
            return list(z)
    return None


# -------------------------------------------------------------------------------------------------------- tables


def _is_table(X: Any) -> bool:
    if isinstance(X, np.ndarray):
        return False
    return hasattr(X, "column_names") or (hasattr(X, "columns") and hasattr(X, "__getitem__"))


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
    owners = plain_column(X, keys[0])
    order, cuts = group_rows([owners], [keys[0]])
    offsets = cuts.numpy()
    columns = read_columns(X, features, schema.kinds).take(order)
    context = None
    if schema.context:
        whole = read_columns(X, schema.context, schema.kinds).take(order)
        _check_constant(whole, offsets, schema.context)
        context = whole.take(offsets[:-1])
    members = Members(columns, offsets, order, None, context, owners[order][offsets[:-1]])
    return _pool_inner(X, keys[1:], members) if len(keys) > 1 else members


def _pool_inner(X: Any, keys: list[str], members: Members) -> Members:
    """Sets of sets: the groups of the inner columns become members, described by their summaries."""
    from .summaries import describe

    assert members.rows is not None
    inner = [plain_column(X, key)[members.rows] for key in keys]
    order, cuts = group_rows([members.set_ids.astype(np.int64), *inner], ["set", *keys])
    offsets = cuts.numpy()
    owner = members.set_ids[order][offsets[:-1]]
    groups = Members(members.columns.take(order), offsets)
    counts = np.bincount(owner, minlength=len(members))
    return Members(describe(groups), np.concatenate([[0], np.cumsum(counts)]), None, None, members.context)


def _check_constant(columns: Columns, offsets: np.ndarray, names: list[str]) -> None:
    starts, sizes = offsets[:-1], np.diff(offsets)
    parts = [(columns.number_names or [])[j] for j in range(columns.numbers.shape[1])]
    values = [columns.numbers[:, j] for j in range(columns.numbers.shape[1])]
    for name, column in zip(
        parts + (columns.category_names or []), values + [c.codes for c in columns.categories], strict=True
    ):
        first = np.repeat(column[starts], sizes)
        same = (column == first) | ((column != column) & (first != first))  # noqa: PLR0124
        if not same.all():
            bad = int(np.searchsorted(offsets, int(np.argmin(same)), side="right")) - 1
            raise ValueError(
                f"the set-level column {name!r} must have one value per set, but it changes within set {bad}: "
                "use it as a feature of the members."
            )


def _parse_anndata(X: Any, schema: Schema) -> Members:
    if not isinstance(schema.by, str):
        raise ValueError(
            f"X is AnnData: name the column of obs that identifies the set, by=. Columns: {list(X.obs.columns)}."
        )
    matrix = X.X.toarray() if hasattr(X.X, "toarray") else np.asarray(X.X)
    order, cuts = group_rows([plain_column(X.obs, schema.by)], [schema.by])
    offsets = cuts.numpy()
    names = [str(name) for name in X.var_names]
    columns = Columns(matrix[order].astype(np.float64), [], names, [], [(name, "number") for name in names])
    context = None
    if schema.context:
        whole = read_columns(X.obs, schema.context, schema.kinds).take(order)
        _check_constant(whole, offsets, schema.context)
        context = whole.take(offsets[:-1])
    return Members(columns, offsets, order, None, context)
