"""Tables, Arrow columns and batches of other libraries to sets, and back; the one grouping of rows into sets."""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from .arrays import as_tensor
from .arrow import read_lists
from .ragged import Ragged, to_offsets


class TableConversions(Ragged):
    """Conversions from and to data frames, Arrow list columns and what is like them."""

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        by: str | Sequence[str],
        columns: Sequence[str] | None = None,
        weights: str | None = None,
        ensure_finite: bool = True,
    ) -> Self:
        """Build a batch from a table with one row per element; rows of a set need not be adjacent.

        Parameters
        ----------
        frame : pandas or polars DataFrame, or any table with ``__arrow_c_stream__``
            For example a pyarrow Table, a DuckDB relation or a Hugging Face data set. Sets come in the order in which
            their key first appears. Features become torch's default dtype.
        by : str or sequence of str
            Column or columns that name the set of a row.
        columns : sequence of str, optional
            Feature columns (default: all others).
        weights : str, optional
            Column of weights.
        ensure_finite : bool, default=True
            Whether NaN and infinity are errors.

        Examples
        --------
        >>> import pandas as pd
        >>> from deepsets import Sets
        >>> table = pd.DataFrame({"basket": ["b", "a", "b"], "price": [1.0, 2.0, 3.0]})
        >>> [x.flatten().tolist() for x in Sets.from_frame(table, by="basket")]
        [[1.0, 3.0], [2.0]]
        """
        numbers, offsets = _group_frame(_as_frame(frame), by, columns, weights)
        values = torch.from_numpy(numbers).to(torch.get_default_dtype())
        if weights is None:
            return cls(values, offsets, ensure_finite=ensure_finite)
        return cls(values[:, :-1], offsets, weights=values[:, -1], ensure_finite=ensure_finite)

    def to_frame(
        self, *, by: str = "set", columns: Sequence[str] | None = None, keys: Sequence[Any] | None = None
    ) -> Any:
        """Return a pandas DataFrame with one row per element. Empty sets have no rows.

        Parameters
        ----------
        by : str, default="set"
            Name of the column that holds the key of the set.
        columns : sequence of str, optional
            Names of the features (default: x0, x1, …).
        keys : sequence, optional
            Key of each set (default: 0, 1, …).

        Returns
        -------
        pandas.DataFrame
            With a last column "weight" if the batch has weights.
        """
        import pandas as pd

        sets = self.materialize().cpu()
        values = sets.values.detach().numpy()
        if values.ndim > 2:
            raise ValueError(f"a table has one column per feature; these elements have shape {values.shape[1:]}.")
        values = values.reshape(len(values), sets.width)
        names = list(columns) if columns is not None else [f"x{i}" for i in range(sets.width)]
        if len(names) != sets.width:
            raise ValueError(f"found {len(names)} names for {sets.width} features.")
        ids = sets.set_ids.numpy()
        if keys is not None and len(keys) != len(self):
            raise ValueError(f"found {len(keys)} keys for {len(self)} sets.")
        table = {by: ids if keys is None else np.asarray(keys)[ids]}
        table |= {name: values[:, i] for i, name in enumerate(names)}
        if sets.weights is not None:
            table["weight"] = sets.weights.detach().numpy()
        return pd.DataFrame(table)

    @classmethod
    def from_anndata(
        cls, adata: Any, *, by: str | Sequence[str], obsm: str | None = None, layer: str | None = None
    ) -> Self:
        """Build a batch from an AnnData object: cells (observations) grouped into sets.

        Parameters
        ----------
        adata : anndata.AnnData
            Sets come in the order in which their key first appears in ``adata.obs``.
        by : str or sequence of str
            Column or columns of ``adata.obs`` that name the set of a cell, for example the donor.
        obsm : str, optional
            Use the matrix ``adata.obsm[obsm]``, for example "X_pca".
        layer : str, optional
            Use the matrix ``adata.layers[layer]`` (default: ``adata.X``).
        """
        keys = [by] if isinstance(by, str) else list(by)
        for store, names in (("obs", keys), ("obsm", [obsm] if obsm else []), ("layers", [layer] if layer else [])):
            known = getattr(adata, store).keys()
            for name in names:
                if name not in known:
                    found = ", ".join(map(str, known)) or "nothing"
                    raise ValueError(f"adata.{store} has no {name!r}; it has: {found}.")
        if obsm and layer:
            raise ValueError("give obsm or layer, not both.")
        if not adata.n_obs:
            raise ValueError("adata has no observations, so there are no sets.")
        matrix = adata.obsm[obsm] if obsm else adata.layers[layer] if layer else adata.X
        if matrix is None:
            raise ValueError(f"adata has no X; choose one of obsm: {', '.join(adata.obsm.keys())}.")
        rows, offsets = group_rows([np.asarray(adata.obs[key].to_numpy()) for key in keys], keys)
        matrix = matrix.to_memory() if hasattr(matrix, "to_memory") else matrix  # a file opened in backed mode
        values = matrix.to_numpy() if hasattr(matrix, "to_numpy") else matrix
        values = values.tocsr()[rows].toarray() if hasattr(values, "tocsr") else np.asarray(values)[rows]
        return cls(torch.from_numpy(values if values.dtype.kind == "f" else values.astype(np.float32)), offsets)

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
            As in :class:`Sets`.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from deepsets import Sets
        >>> Sets.from_arrow(pa.array([[{"x": 1.0, "y": 2.0}], []]))
        Sets(2 sets, 1 elements of 2 features, sizes 0..1, float64)
        """
        return cls(*read_lists(column), ensure_finite=ensure_finite)

    def to_arrow(self) -> Any:
        """Return an Arrow list array, ``large_list`` of numbers or fixed-size lists. Shares values in CPU memory."""
        import pyarrow as pa

        sets = self.materialize().cpu()
        flat = pa.array(sets.values.detach().contiguous().reshape(-1).numpy())
        for size in reversed(sets.values.shape[1:]):
            flat = pa.FixedSizeListArray.from_arrays(flat, size)
        return pa.LargeListArray.from_arrays(pa.array(sets.offsets.numpy()), flat)

    @classmethod
    def from_pyg(cls, x: Any, *, batch: Any = None, ptr: Any = None, num_sets: int | None = None) -> Self:
        """Build a batch from the tensors of PyTorch Geometric.

        Parameters
        ----------
        x : array-like, or torch_geometric Data or Batch
            (N, ...) the elements. A Data object brings its own `x`, `batch` and `ptr`.
        batch : array-like, optional
            (N,) the number of the set of each element, in any order.
        ptr : array-like, optional
            (B + 1,) the offsets. Give `batch` or `ptr`.
        num_sets : int, optional
            B, where the last sets may be empty and `batch` is given.
        """
        if hasattr(x, "x") and not isinstance(x, np.ndarray | Tensor):
            ptr = getattr(x, "ptr", None) if ptr is None else ptr
            batch = getattr(x, "batch", None) if batch is None and ptr is None else batch
            x = x.x
            if batch is None and ptr is None:  # a single graph
                ptr = [0, len(x)]
        x = as_tensor(x, "x")
        if (batch is None) == (ptr is None):
            raise ValueError("give batch (the set of each element) or ptr (the offsets), and not both.")
        if ptr is not None:
            return cls(x, as_tensor(ptr, "ptr").to(x.device))
        batch = as_tensor(batch, "batch").to(x.device)
        if batch.ndim != 1 or batch.is_floating_point() or len(batch) != len(x):
            raise ValueError(
                f"batch must be one integer for each of the {len(x)} elements; found shape {tuple(batch.shape)} of "
                f"{batch.dtype}."
            )
        if len(batch) and int(batch.min()) < 0:
            raise ValueError(f"batch must not be negative, found {int(batch.min())}.")
        sizes = torch.bincount(batch, minlength=num_sets or 0)
        if num_sets is not None and len(sizes) > num_sets:
            raise ValueError(f"batch names set {len(sizes) - 1}, but num_sets is {num_sets}.")
        return cls(x.index_select(0, batch.argsort(stable=True)), to_offsets(sizes))

    def to_pyg(self) -> Any:
        """Return a `torch_geometric.data.Data` with `x`, `batch` and `ptr` (and `weight`, if there are weights)."""
        from torch_geometric.data import Data

        sets = self.materialize()
        extra = {} if sets.weights is None else {"weight": sets.weights}
        return Data(x=sets.values, batch=sets.set_ids, ptr=sets.offsets, num_nodes=sets.total, **extra)

    @classmethod
    def from_awkward(cls, array: Any) -> Self:
        """Build a batch from an awkward array.

        Parameters
        ----------
        array : awkward.Array
            Of type ``B * var * number``, ``B * var * D * number`` or ``B * var * {fields}``; the fields become the
            features.
        """
        import awkward as ak

        return cls.from_arrow(ak.to_arrow(array, list_to32=False, extensionarray=False))

    def to_awkward(self) -> Any:
        """Return an awkward array ``B * var * …``."""
        import awkward as ak

        sets = self.materialize().cpu()
        return ak.unflatten(ak.Array(sets.values.detach().numpy()), sets.sizes.numpy())


def group_rows(keys: Sequence[np.ndarray], names: Sequence[str]) -> tuple[np.ndarray, torch.Tensor]:
    """Group rows with equal keys; groups, and rows in a group, stay in order of appearance.

    Parameters
    ----------
    keys : sequence of ndarray
        One or more columns of equal length. Values are compared with ``==``: 1 and "1" are two sets.
    names : sequence of str
        Names of the columns, for error messages.

    Returns
    -------
    rows : ndarray
        (N,) row numbers, group after group.
    offsets : Tensor
        (B + 1,) where each group starts in `rows`.
    """
    codes = np.zeros(len(keys[0]), dtype=np.int64)
    for key, name in zip(keys, names, strict=True):
        missing = is_missing(key)
        if missing.any():
            raise ValueError(f"row {int(missing.argmax())} has no value in the set column {name!r}.")
        if key.dtype.kind == "O":  # objects need not be sortable
            seen: dict[Any, int] = {}
            code = np.array([seen.setdefault(value, len(seen)) for value in key], dtype=np.int64)
        else:
            code = np.unique(key, return_inverse=True)[1]
        _, codes = np.unique(codes * (int(code.max(initial=0)) + 1) + code, return_inverse=True)
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    appearance = np.empty(len(first), dtype=np.int64)
    appearance[np.argsort(first)] = np.arange(len(first))
    return group_codes(appearance[inverse], len(first))


def group_codes(codes: np.ndarray, count: int) -> tuple[np.ndarray, torch.Tensor]:
    """Group rows by the number of their group, 0 to count - 1; returns what :func:`group_rows` returns."""
    offsets = np.concatenate([[0], np.bincount(codes, minlength=count).cumsum()])
    small = count <= 1 << 16  # 16 bits are sorted by digits, four times as fast
    rows = np.argsort(codes.astype(np.uint16) if small else codes, kind="stable")
    return rows, torch.from_numpy(offsets)


def is_missing(column: np.ndarray) -> np.ndarray:
    """Mark missing values: None, NaN, NaT and pandas' NA."""
    if column.dtype.kind == "O":  # what is missing is None or not equal to itself; NA == NA is neither True nor False
        same = [value is not None and value == value for value in column]  # noqa: PLR0124
        return np.array([not (isinstance(s, bool | np.bool_) and s) for s in same], dtype=bool)
    return np.asarray(column != column)  # noqa: PLR0124


def _as_frame(table: Any) -> Any:
    """Convert a table of any library to a pandas DataFrame; pandas and polars frames stay as they are."""
    if type(table).__module__.split(".")[0] in ("pandas", "polars"):
        return table
    if hasattr(table, "to_pandas"):
        return table.to_pandas()
    if hasattr(table, "__arrow_c_stream__"):
        import pyarrow as pa

        return pa.table(table).to_pandas()
    raise ValueError(f"expected a table with named columns, found {type(table).__name__}.")


def _group_frame(
    frame: Any, by: str | Sequence[str], columns: Sequence[str] | None, weights: str | None
) -> tuple[np.ndarray, torch.Tensor]:
    """Feature columns, then that of weights, of the rows of each set one after another; and the offsets."""
    keys = [by] if isinstance(by, str) else list(by)
    names = list(frame.columns)
    known = ", ".join(map(str, names))
    features = [c for c in names if c not in keys and c != weights] if columns is None else list(columns)
    chosen = [*features, *([weights] if weights else [])]
    for name in [*keys, *chosen]:
        if name not in names:
            raise ValueError(f"the table has no column {name!r}; it has: {known}.")
    if not keys:
        raise ValueError(f"by names no column, so rows cannot be grouped into sets; the table has: {known}.")
    if not features:
        raise ValueError(f"no feature columns are left beside {', '.join(map(str, keys))}; the table has: {known}.")
    if len(frame) == 0:
        raise ValueError("the table has no rows, so there are no sets.")
    rows, offsets = group_rows([np.asarray(frame[key].to_numpy()) for key in keys], keys)
    return np.stack([_numbers(frame, name)[rows] for name in chosen], axis=1), offsets


def _numbers(frame: Any, name: str) -> np.ndarray:
    column = np.asarray(frame[name].to_numpy())
    if column.dtype.kind not in "biuf":
        number = int | float | np.number | decimal.Decimal
        bad = next(((i, v) for i, v in enumerate(column) if not isinstance(v, number)), None)
        if bad is not None:
            raise ValueError(
                f"column {name!r} must hold numbers, but row {bad[0]} is {str(bad[1])!r}. "
                "Choose the feature columns with columns=[…]."
            )
    return column.astype(np.float64)
