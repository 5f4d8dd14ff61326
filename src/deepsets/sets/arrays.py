"""Lists, flat arrays, padded arrays and nested tensors to sets, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from .ragged import Ragged
from .selection import to_offsets


class ArrayConversions(Ragged):
    """Conversions from and to arrays and tensors."""

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
        flat = None if weights is None else _flat_weights(list(weights), offsets.diff().cpu(), values)
        return cls(values, offsets, weights=flat, ensure_finite=ensure_finite)

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
            (N,)

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
        flat = None if weights is None else _float(as_tensor(weights, "the array of weights"), values)
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
            mask = ~(padded.isnan().flatten(2).all(-1) if padded.ndim > 2 else padded.isnan())
        mask = as_tensor(mask, "the mask")
        if mask.shape != padded.shape[:2]:
            raise ValueError(
                f"the mask must have the shape of the first two axes of the batch, {tuple(padded.shape[:2])}; "
                f"found {tuple(mask.shape)}."
            )
        if mask.dtype != torch.bool:
            odd = mask[(mask != 0) & (mask != 1)]
            if len(odd):
                raise ValueError(f"the mask must hold True and False (or 1 and 0), found {odd[0].item()}.")
            mask = mask.bool()
        return cls(padded[mask.to(padded.device)], to_offsets(mask.sum(1)).to(padded.device))

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

    # --------------------------------------------------------------------------------------------------- out

    def to_list(self) -> list[Tensor]:
        """Split the batch into one tensor (n_b, ...) per set: views, not copies, unless there are `element_ids`."""
        return list(self.materialize().values.split(self.sizes.tolist()))

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

    def to_nested(self) -> Tensor:
        """Return a nested tensor of layout ``torch.jagged``, (B, ragged, ...), that shares the values."""
        sets = self.materialize()
        return torch.nested.nested_tensor_from_jagged(sets.values, sets.offsets)


def as_tensor(array: Any, where: str) -> Tensor:
    """Convert to a tensor that shares memory where it can; floats of plain Python become torch's default dtype.

    Parameters
    ----------
    array : array-like
        Numbers.
    where : str
        What the array is, for the error message.
    """
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
    """Join one array per set to all elements and the offsets of the sets, without checking the numbers.

    Parameters
    ----------
    arrays : iterable of array-like
        As in :meth:`Sets.from_list`.

    Returns
    -------
    values : Tensor
        (N, ...)
    offsets : Tensor
        (B + 1,)
    """
    tensors = [as_tensor(a, f"set {b}") for b, a in enumerate(arrays)]
    if not tensors:
        raise ValueError("found no sets: a list of at least one array is needed, to know the shape of an element.")
    for b, tensor in enumerate(tensors):
        if tensor.ndim == 0:
            raise ValueError(f"set {b} is a single number; expected an array (elements, features).")
    # An empty list has no width of its own: it takes that of the others.
    first = next((b for b, t in enumerate(tensors) if t.numel() > 0), None)
    if first is None:
        first = max(range(len(tensors)), key=lambda b: tensors[b].ndim)
    model = tensors[first]
    if len(model) == 0 and model.ndim == 1 and all(t.shape == (0,) for t in tensors):
        raise ValueError("all sets are empty and none has a known width: give arrays of shape (0, width).")
    for b, tensor in enumerate(tensors):
        if tensor.shape == (0,):
            tensors[b] = model.new_empty((0, *model.shape[1:]))
        elif tensor.shape[1:] != model.shape[1:]:
            raise ValueError(
                f"set {b} has elements {_shape(tensor)}, but set {first} has {_shape(model, short=True)}: all elements "
                f"of a batch need the same shape. Found shapes {tuple(model.shape)}, …, {tuple(tensor.shape)}."
            )
        elif tensor.dtype != model.dtype:
            raise ValueError(
                f"set {b} is {tensor.dtype}, but set {first} is {model.dtype}: convert them to one dtype first."
            )
        elif tensor.device != model.device:
            raise ValueError(f"set {b} is on {tensor.device}, but set {first} on {model.device}.")
    return torch.cat(tensors), to_offsets(torch.tensor([len(t) for t in tensors])).to(model.device)


def _shape(tensor: Tensor, *, short: bool = False) -> str:
    if tensor.ndim == 2:
        return f"{tensor.shape[1]}" if short else f"with {tensor.shape[1]} features"
    return f"of shape {tuple(tensor.shape[1:])}"


def _float(weights: Tensor, model: Tensor) -> Tensor:
    return weights.to(model.device, model.dtype if model.is_floating_point() else torch.get_default_dtype())


def _flat_weights(weights: list[Any], sizes: Tensor, model: Tensor) -> Tensor:
    if len(weights) != len(sizes):
        raise ValueError(f"found {len(weights)} arrays of weights for {len(sizes)} sets.")
    tensors = [_float(as_tensor(w, f"weights of set {b}"), model) for b, w in enumerate(weights)]
    for b, (w, n) in enumerate(zip(tensors, sizes.tolist(), strict=True)):
        if w.shape != (n,):
            raise ValueError(f"set {b} has {n} elements, but its weights have shape {tuple(w.shape)}.")
    return torch.cat(tensors)
