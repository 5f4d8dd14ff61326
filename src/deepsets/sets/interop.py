"""Sets of other libraries: PyTorch Geometric, awkward arrays, AnnData, folders of files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from .arrays import as_tensor, flatten_arrays
from .arrow import ArrowConversions
from .selection import Selection, to_offsets
from .tables import Grouped, group_rows

_SUFFIXES = (".npy", ".h5", ".hdf5", ".pt", ".pth")


class InteropConversions(ArrowConversions, Selection):
    """Conversions from and to other libraries."""

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
        found = int(batch.max()) + 1 if len(batch) else 0
        if num_sets is not None and found > num_sets:
            raise ValueError(f"batch names set {found - 1}, but num_sets is {num_sets}.")
        order = batch.argsort(stable=True)
        sizes = torch.bincount(batch, minlength=found if num_sets is None else num_sets)
        return cls(x.index_select(0, order), to_offsets(sizes))

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
        table = group_anndata(adata, by, obsm=obsm, layer=layer)
        return cls(torch.from_numpy(table.values), table.offsets)

    @classmethod
    def from_files(cls, paths: str | Path | Iterable[str | Path], *, key: str | None = None) -> Self:
        """Build a batch from files that hold one set each.

        Parameters
        ----------
        paths : path or iterable of paths
            A folder, whose files are read in the order of their names, or the files. ``.npy`` and ``.pt`` files hold an
            array (n, ...); nothing in them is run (``allow_pickle=False``, ``weights_only=True``).
        key : str, optional
            Name of the array in ``.h5`` files, and in ``.pt`` files that hold a dict.
        """
        if isinstance(paths, str | Path):
            folder = Path(paths)
            if not folder.is_dir():
                raise ValueError(f"{folder} is not a folder; give a folder, or a list of files.")
            found = sorted(p for p in folder.iterdir() if p.suffix in _SUFFIXES)
            if not found:
                raise ValueError(f"the folder {folder} holds no file that ends in {', '.join(_SUFFIXES)}.")
        else:
            found = [Path(p) for p in paths]
        values, offsets = flatten_arrays(_read(path, key) for path in found)
        return cls(values, offsets)


def group_anndata(adata: Any, by: str | Sequence[str], *, obsm: str | None = None, layer: str | None = None) -> Grouped:
    """Group the cells of an AnnData object into sets; see :meth:`Sets.from_anndata`.

    Parameters
    ----------
    adata : AnnData
        The cells.
    by : str or sequence of str
        Columns of ``adata.obs`` that identify the set.
    obsm : str, optional
        Key of ``adata.obsm`` with the features; by default ``adata.X``.
    layer : str, optional
        Key of ``adata.layers`` with the features.

    Returns
    -------
    Grouped
        With the values in the dtype of the matrix, or float32 if it holds integers.
    """
    keys = [by] if isinstance(by, str) else list(by)
    for store, name, known in (
        ("obs", keys, adata.obs),
        ("obsm", [obsm], adata.obsm),
        ("layers", [layer], adata.layers),
    ):
        for key in name:
            if key is not None and key not in known:
                raise ValueError(
                    f"adata.{store} has no {key!r}; it has: {', '.join(map(str, known.keys())) or 'nothing'}."
                )
    if obsm is not None and layer is not None:
        raise ValueError("give obsm or layer, not both.")
    if not adata.n_obs:
        raise ValueError("adata has no observations, so there are no sets.")
    matrix = adata.obsm[obsm] if obsm is not None else adata.layers[layer] if layer is not None else adata.X
    if matrix is None:
        raise ValueError(f"adata has no X; choose one of obsm: {', '.join(adata.obsm.keys())}.")
    rows, offsets = group_rows([np.asarray(adata.obs[key].to_numpy()) for key in keys], keys)
    matrix = matrix.to_memory() if hasattr(matrix, "to_memory") else matrix  # a file opened in backed mode
    values = matrix.to_numpy() if hasattr(matrix, "to_numpy") else matrix
    values = values.tocsr()[rows].toarray() if hasattr(values, "tocsr") else np.asarray(values)[rows]
    return Grouped(values if values.dtype.kind == "f" else values.astype(np.float32), offsets, rows)


def _read(path: Path, key: str | None) -> Tensor:
    try:
        if path.suffix == ".npy":
            array: Any = np.load(path, allow_pickle=False)
        elif path.suffix in (".h5", ".hdf5"):
            array = _read_hdf5(path, key)
        elif path.suffix in (".pt", ".pth"):
            array = torch.load(path, map_location="cpu", weights_only=True)
            if isinstance(array, dict):
                array = _entry(array, key)
        else:
            raise ValueError(f"files must end in {', '.join(_SUFFIXES)}")
        return as_tensor(array, "its content")
    except FileNotFoundError:
        raise
    except Exception as error:  # damaged files raise whatever their readers raise
        raise ValueError(f"cannot read a set from {path}: {error}") from error


def _read_hdf5(path: Path, key: str | None) -> np.ndarray:
    import h5py

    with h5py.File(path, "r") as file:
        entry = _entry(file, key)
        if not isinstance(entry, h5py.Dataset):
            raise ValueError(f"{key!r} is a group with {', '.join(entry)}; name a data set in it")
        return np.asarray(entry[()])


def _entry(store: Any, key: str | None) -> Any:
    names = list(store)
    if key is None and len(names) == 1:
        return store[names[0]]
    if key is None or key not in store:
        found = "is missing" if key is None else f"{key!r} is not in the file"
        raise ValueError(f"key {found}; it holds: {', '.join(map(str, names))}")
    return store[key]
