"""What users give as X and z, as members with columns of numbers and categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from ..sets import Sets, flatten_arrays, group_rows, is_missing
from .columns import Category, Columns, column_names, factorize, from_values, plain_column, read_columns

TOKEN = "token"  # name of the one column of a set of tokens


@dataclass(frozen=True)
class Members:
    """Members of B sets, one set after another.

    Attributes
    ----------
    columns : Columns
        N rows, one per member.
    offsets : ndarray of shape (B + 1,)
    rows : ndarray of shape (N,) or None
        For tables, the row of each member.
    weights : ndarray of shape (N,) or None
        Multiplicities of the members.
    context : Columns or None
        B rows: set-level columns that were read from the table.

    """

    columns: Columns
    offsets: np.ndarray
    rows: np.ndarray | None = None
    weights: np.ndarray | None = None
    context: Columns | None = None
    names: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> np.ndarray:
        """(B,) members per set."""
        return np.diff(self.offsets)

    @property
    def total(self) -> int:
        """Members of all sets."""
        return int(self.offsets[-1])

    @property
    def set_ids(self) -> np.ndarray:
        """(N,) number of the set of each member."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def take(self, sets: np.ndarray) -> Members:
        """Select sets."""
        sizes = self.sizes[sets]
        starts = np.repeat(self.offsets[:-1][sets] - np.cumsum(sizes) + sizes, sizes)
        places = np.arange(int(sizes.sum())) + starts
        return Members(
            self.columns.take(places),
            np.concatenate([[0], np.cumsum(sizes)]),
            None if self.rows is None else self.rows[places],
            None if self.weights is None else self.weights[places],
            None if self.context is None else self.context.take(sets),
            None if self.names is None else self.names[sets],
        )

    def where(self, row: int) -> str:
        """Set and position of a member, in words."""
        b = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return f"set {b}, member {row - int(self.offsets[b])}"

    def layout(self, values: np.ndarray | torch.Tensor) -> Sets:
        """Sets of the same sizes that hold `values` (N, ...)."""
        weights = None if self.weights is None else torch.from_numpy(self.weights).float()
        return Sets(torch.as_tensor(values), torch.from_numpy(self.offsets), weights=weights)


class Schema(NamedTuple):
    """How to read a table: set columns, feature columns, set-level columns, and the kinds seen in `fit`."""

    by: str | Sequence[str] | None
    columns: list[str] | None = None
    context: list[str] | None = None
    drop: tuple[str, ...] = ()
    kinds: dict[str, str] | None = None


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
        return _from_sets(X)
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
        return _parse_arrow(X, schema)
    return _parse_list(X)


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
        columns = _join(each, names, len(array))
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


# ------------------------------------------------------------------------------------------- lists, arrays, Arrow


def _from_sets(sets: Sets) -> Members:
    sets = sets.materialize().to("cpu")
    values, offsets = sets.values.detach(), sets.offsets.numpy()
    weights = None if sets.weights is None else sets.weights.double().numpy()
    if values.ndim == 1 and not values.is_floating_point():  # plain integers are ids, as in a list
        columns = _tokens(values.numpy())
    else:
        columns = _matrix(values.reshape(len(values), -1).double().numpy(), offsets)
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


def _parse_arrow(column: Any, schema: Schema) -> Members:
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
        return _parse_list(column.to_pylist())
    return _from_sets(Sets.from_arrow(column))


def _parse_list(X: Any) -> Members:
    if isinstance(X, np.ma.MaskedArray):
        X = np.ma.filled(X.astype(float), np.nan)
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu().numpy()
    if isinstance(X, np.ndarray) and X.dtype != object:
        if X.dtype.kind == "c":
            raise ValueError("X holds complex numbers: give the real and the imaginary part as two features.")
        if X.ndim != 3:
            raise ValueError(
                f"an array X must have the shape (sets, members, features), found {X.shape}: for sets of different "
                "sizes give a list of 2-D arrays; for one set per row write X[:, None, :]."
            )
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
            raise ValueError(f"set {b} holds complex numbers: give the real and the imaginary part as two features.")
        arrays.append(members.detach().double().cpu() if isinstance(members, torch.Tensor) else members)
    values, offsets = flatten_arrays(arrays)
    flat, cuts = values.reshape(len(values), -1).numpy(), offsets.numpy()
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
    return Members(_join(each, names, len(flat)), offsets)


def _join(each: list[tuple[str, Category | list[np.ndarray]]], names: list[str], count: int) -> Columns:
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
