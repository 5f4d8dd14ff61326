"""Sets of arrays, padded and nested tensors, tokens and files, and back."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from .ragged import Ragged, to_offsets

_SUFFIXES = (".npy", ".h5", ".hdf5", ".pt", ".pth")


class ArrayConversions(Ragged):
    """Conversions from and to arrays and tensors, with values of one dtype."""

    @classmethod
    def from_list(
        cls, arrays: Iterable[Any], *, weights: Iterable[Any] | None = None, ensure_finite: bool = True
    ) -> Self:
        """Build a batch from one array per set.

        Parameters
        ----------
        arrays : iterable of array-like
            One array, tensor or nested list (n_b, ...) per set, all with elements of one shape and dtype. An empty
            list is an empty set.
        weights : iterable of array-like, optional
            One array (n_b,) per set.
        ensure_finite : bool, default=True
            Whether NaN and infinity are errors.

        Examples
        --------
        >>> from deepsets import Sets
        >>> Sets.from_list([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]], []]).sizes.tolist()
        [2, 1, 0]
        """
        values, offsets = flatten_arrays(arrays)
        flat = None if weights is None else _as_weights(_join_weights(weights, offsets.diff().tolist()), values)
        return cls(values, offsets, weights=flat, ensure_finite=ensure_finite)

    def to_list(self) -> list[Tensor]:
        """Split the batch into one tensor (n_b, ...) per set: views, not copies, unless there are `element_ids`."""
        return list(self)

    @classmethod
    def from_lengths(cls, values: Any, lengths: Any, *, weights: Any = None) -> Self:
        """Build a batch from all elements in one array, and the number of elements of each set.

        Parameters
        ----------
        values : array-like
            (N, ...) the elements, one set after another.
        lengths : array-like
            (B,) integers that add up to N.
        weights : array-like, optional
            (N,) numbers.

        Examples
        --------
        >>> from deepsets import Sets
        >>> Sets.from_lengths([1.0, 2.0, 3.0], [2, 1])
        Sets(2 sets, 3 elements of one value, sizes 1..2, float32)
        """
        values, lengths = as_tensor(values, "the array of values"), as_tensor(lengths, "the array of lengths")
        if lengths.ndim != 1 or lengths.is_floating_point() or lengths.dtype == torch.bool:
            raise ValueError(
                f"lengths must be a vector of integers, found shape {tuple(lengths.shape)} of {lengths.dtype}."
            )
        negative = (lengths < 0).nonzero()
        if len(negative):
            raise ValueError(f"lengths must not be negative: set {int(negative[0])} has {int(lengths[negative[0]])}.")
        offsets = to_offsets(lengths.long().to(values.device))
        if values.ndim and int(offsets[-1]) != len(values):
            raise ValueError(f"the lengths add up to {int(offsets[-1])}, but there are {len(values)} elements.")
        flat = None if weights is None else _as_weights(as_tensor(weights, "the array of weights"), values)
        return cls(values, offsets, weights=flat)

    @classmethod
    def from_padded(cls, padded: Any, mask: Any = "nan") -> Self:
        """Build a batch from a padded array and its mask.

        Parameters
        ----------
        padded : array-like
            (B, M, ...)
        mask : array-like or "nan", default="nan"
            (B, M), True (or 1) where there is an element. "nan": an element whose features are all NaN is padding.
        """
        padded = as_tensor(padded, "the padded array")
        if padded.ndim < 2:
            raise ValueError(f"a padded batch has shape (B, M, ...), found {tuple(padded.shape)}.")
        if isinstance(mask, str):
            if mask != "nan":
                raise ValueError(f"the mask must be an array (B, M) or 'nan', found {mask!r}.")
            mask = ~padded[..., None].isnan().flatten(2).all(-1)
        mask = as_tensor(mask, "the mask")
        if mask.shape != padded.shape[:2]:
            raise ValueError(
                f"the mask must have the shape of the first two axes of the batch, {tuple(padded.shape[:2])}; "
                f"found {tuple(mask.shape)}."
            )
        odd = mask[(mask != 0) & (mask != 1)]
        if len(odd):
            raise ValueError(f"the mask must hold True and False (or 1 and 0), found {odd[0].item()}.")
        mask = mask.bool().to(padded.device)
        return cls(padded[mask], to_offsets(mask.sum(1)))

    def to_padded(self, fill: float = 0) -> tuple[Tensor, Tensor]:
        """Pad all sets to the size of the largest.

        Parameters
        ----------
        fill : float, default=0
            Value of the padding.

        Returns
        -------
        padded : Tensor
            (B, M, ...)
        mask : Tensor
            (B, M), True where there is an element.
        """
        sets = self.materialize()
        longest = int(sets.sizes.max()) if len(sets) else 0
        mask = torch.arange(longest, device=sets.device) < sets.sizes[:, None]
        padded = sets.values.new_full((len(sets), longest, *sets.values.shape[1:]), fill)
        return padded.masked_scatter(mask.reshape(*mask.shape, *[1] * (padded.ndim - 2)), sets.values), mask

    @classmethod
    def from_nested(cls, nested: Any) -> Self:
        """Build a batch from a nested tensor (B, ragged, ...) of layout ``torch.jagged`` (no copy) or strided.

        Parameters
        ----------
        nested : Tensor
            As made by :func:`torch.nested.nested_tensor`.
        """
        if not getattr(nested, "is_nested", False):
            raise ValueError(f"from_nested takes a nested tensor, found {type(nested).__name__}.")
        if nested.layout == torch.jagged and nested._ragged_idx == 1 and nested.lengths() is None:
            return cls(nested.values(), nested.offsets())
        return cls(*flatten_arrays(nested.unbind()))

    def to_nested(self) -> Tensor:
        """Return a nested tensor of layout ``torch.jagged``, (B, ragged, ...), that shares the values."""
        sets = self.materialize()
        return torch.nested.nested_tensor_from_jagged(sets.values, sets.offsets)

    @classmethod
    def from_ids(cls, lists: Iterable[Iterable[Any]], vocabulary: Sequence[Any] | dict[Any, int]) -> Self:
        """Build a batch of integer ids (N,), to be embedded, from one list of tokens per set.

        Parameters
        ----------
        lists : iterable of iterables
            The tokens of each set.
        vocabulary : sequence or dict
            All tokens in the order of their ids, or a mapping from token to id.

        Examples
        --------
        >>> from deepsets import Sets
        >>> Sets.from_ids([["milk", "egg"], ["egg"]], vocabulary=["egg", "milk"])[0]
        tensor([1, 0])
        """
        ids = vocabulary if isinstance(vocabulary, dict) else {token: i for i, token in enumerate(vocabulary)}
        if len(ids) != len(vocabulary):
            twice = next(t for i, t in enumerate(vocabulary) if ids[t] != i)
            raise ValueError(f"the vocabulary has {len(vocabulary)} entries, but {twice!r} occurs twice.")
        flat: list[int] = []
        offsets = [0]
        for b, tokens in enumerate(lists):
            if isinstance(tokens, str):
                raise ValueError(f"set {b} is the string {tokens!r}; expected a list of tokens.")
            for token in tokens:
                if token not in ids:
                    known = [t for t in ids if isinstance(t, str)]
                    near = difflib.get_close_matches(token, known, 3) if isinstance(token, str) else []
                    similar = f" Similar tokens: {', '.join(near)}." if near else ""
                    raise ValueError(
                        f"set {b} holds {token!r}, which is not in the vocabulary of {len(ids)} tokens.{similar}"
                    )
                flat.append(ids[token])
            offsets.append(len(flat))
        return cls(torch.tensor(flat, dtype=torch.long), torch.tensor(offsets))

    @classmethod
    def from_csr(cls, matrix: Any) -> Self:
        """Build a batch of ids (N,) and weights (N,) from the rows of a sparse matrix, for example bags of words.

        Parameters
        ----------
        matrix : scipy.sparse matrix or array
            (B, vocabulary). The columns of the nonzero entries of row b are the elements of set b, the entries their
            weights, which must not be negative.

        Examples
        --------
        >>> from deepsets import Sets
        >>> from scipy.sparse import csr_array
        >>> bags = Sets.from_csr(csr_array([[0, 2, 1], [0, 0, 0]]))
        >>> bags[0], bags.weights, bags.sizes
        (tensor([1, 2]), tensor([2., 1.]), tensor([2, 0]))
        """
        if not hasattr(matrix, "tocsr"):
            raise ValueError(f"from_csr takes a scipy sparse matrix, found {type(matrix).__name__}.")
        rows = matrix.tocsr(copy=True)
        rows.eliminate_zeros()
        entries = torch.from_numpy(np.asarray(rows.data))
        if entries.is_complex():
            raise ValueError("the entries of the matrix are weights and must be real, found complex numbers.")
        columns, offsets = (torch.from_numpy(part.astype(np.int64)) for part in (rows.indices, rows.indptr))
        if len(columns) and (int(columns.min()) < 0 or int(columns.max()) >= matrix.shape[1]):
            raise ValueError(f"the matrix is damaged: a column number is outside of 0..{matrix.shape[1] - 1}.")
        return cls(columns, offsets, weights=_as_weights(entries, entries))

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
            paths = sorted(p for p in folder.iterdir() if p.suffix in _SUFFIXES)
            if not paths:
                raise ValueError(f"the folder {folder} holds no file that ends in {', '.join(_SUFFIXES)}.")
        return cls(*flatten_arrays(_read_file(Path(path), key) for path in paths))


def as_tensor(array: Any, where: str) -> Tensor:
    """Convert to a tensor that shares memory where it can; floats of plain Python become torch's default dtype."""
    if isinstance(array, Tensor):
        return array
    try:
        if isinstance(array, np.ma.MaskedArray):
            raise TypeError("masked arrays are not supported; give the mask apart, as to Sets.from_padded")
        if isinstance(array, np.ndarray):
            if not array.flags.writeable or not array.dtype.isnative or min(array.strides, default=0) < 0:
                array = array.astype(array.dtype.newbyteorder("="), order="C")
            return torch.from_numpy(array)
        if isinstance(array, list | tuple) and any(isinstance(row, np.ndarray) for row in array):
            return torch.from_numpy(np.stack(array))
        return torch.as_tensor(array)
    except (TypeError, ValueError, RuntimeError) as error:
        found = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise ValueError(
            f"{where} cannot be read as an array of numbers (found {found}): {error}. "
            "For tokens use Sets.from_ids, or an estimator, which learns the vocabulary."
        ) from None


def flatten_arrays(arrays: Iterable[Any]) -> tuple[Tensor, Tensor]:
    """Join one array per set to values (N, ...) and offsets (B + 1,), without checking that they are finite."""
    tensors = [as_tensor(a, f"set {b}") for b, a in enumerate(arrays)]
    if not tensors:
        raise ValueError("found no sets: a list of at least one array is needed, to know the shape of an element.")
    # An empty list has no width of its own: it takes that of the others.
    first = max(range(len(tensors)), key=lambda b: (tensors[b].numel() > 0, tensors[b].ndim, -b))
    model = tensors[first]
    if model.shape == (0,):
        raise ValueError("all sets are empty and none has a known width: give arrays of shape (0, width).")
    for b, tensor in enumerate(tensors):
        if tensor.ndim == 0:
            raise ValueError(f"set {b} is a single number; expected an array (elements, features).")
        if tensor.shape == (0,):
            tensors[b] = model.new_empty((0, *model.shape[1:]))
        elif tensor.shape[1:] != model.shape[1:]:
            both = [f"{t.shape[1]}" if t.ndim == 2 else f"of shape {tuple(t.shape[1:])}" for t in (tensor, model)]
            found = f"with {both[0]} features" if tensor.ndim == 2 else both[0]
            raise ValueError(
                f"set {b} has elements {found}, but set {first} has {both[1]}: all elements of a batch need the same "
                f"shape. Found shapes {tuple(model.shape)}, …, {tuple(tensor.shape)}."
            )
        elif tensor.dtype != model.dtype:
            raise ValueError(
                f"set {b} is {tensor.dtype}, but set {first} is {model.dtype}: convert them to one dtype first."
            )
        elif tensor.device != model.device:
            raise ValueError(f"set {b} is on {tensor.device}, but set {first} on {model.device}.")
    return torch.cat(tensors), to_offsets(torch.tensor([len(t) for t in tensors])).to(model.device)


def _join_weights(weights: Iterable[Any], sizes: list[int]) -> Tensor:
    tensors = [as_tensor(w, f"weights of set {b}") for b, w in enumerate(weights)]
    if len(tensors) != len(sizes):
        raise ValueError(f"found {len(tensors)} arrays of weights for {len(sizes)} sets.")
    for b, (w, n) in enumerate(zip(tensors, sizes, strict=True)):
        if w.shape != (n,):
            raise ValueError(f"set {b} has {n} elements, but its weights have shape {tuple(w.shape)}.")
    return torch.cat(tensors)


def _as_weights(weights: Tensor, model: Tensor) -> Tensor:
    return weights.to(model.device, model.dtype if model.is_floating_point() else torch.get_default_dtype())


def _read_file(path: Path, key: str | None) -> Tensor:
    try:
        if path.suffix == ".npy":
            array: Any = np.load(path, allow_pickle=False)
        elif path.suffix in (".h5", ".hdf5"):
            import h5py

            with h5py.File(path, "r") as file:
                array = _entry(file, key)
                if not isinstance(array, h5py.Dataset):
                    raise ValueError(f"{key!r} is a group with {', '.join(array)}; name a data set in it")
                array = array[()]
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


def _entry(store: Any, key: str | None) -> Any:
    names = list(store)
    if key is None and len(names) == 1:
        return store[names[0]]
    if key is None or key not in store:
        found = "is missing" if key is None else f"{key!r} is not in the file"
        raise ValueError(f"key {found}; it holds: {', '.join(map(str, names))}")
    return store[key]
