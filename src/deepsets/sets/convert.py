"""Lists, padded arrays and tokens to sets, and back."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .ragged import Sets


def as_tensor(array: Any, where: str) -> Tensor:
    """A tensor that shares memory where it can; doubles of plain Python become torch's default dtype."""
    if isinstance(array, Tensor):
        return array
    try:
        if isinstance(array, np.ndarray):
            if not array.flags.writeable or not array.dtype.isnative or min(array.strides, default=0) < 0:
                array = array.astype(array.dtype.newbyteorder("="), order="C")
            return torch.from_numpy(array)
        if isinstance(array, list | tuple) and any(isinstance(row, np.ndarray) for row in array):
            return torch.from_numpy(np.stack(array))
        return torch.as_tensor(array)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{where} cannot be read as an array of numbers (found {_describe(array)}): {error}. "
            "For tokens use Sets.from_ids, or an estimator, which learns the vocabulary."
        ) from None


def _describe(array: Any) -> str:
    return f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__


def from_list(arrays: Iterable[Any], weights: Iterable[Any] | None) -> Sets:
    """See `Sets.from_list`."""
    values, offsets = flat_list(arrays)
    flat = None if weights is None else _flat_weights(list(weights), offsets.diff().cpu(), values)
    return Sets(values, offsets, weights=flat)


def flat_list(arrays: Iterable[Any]) -> tuple[Tensor, Tensor]:
    """One array a set, to all elements (N, ...) and offsets (B + 1,)."""
    tensors = [as_tensor(a, f"set {b}") for b, a in enumerate(arrays)]
    if not tensors:
        raise ValueError("found no sets: a list of at least one array is wanted, to know the shape of an element.")
    for b, tensor in enumerate(tensors):
        if tensor.ndim == 0:
            raise ValueError(f"set {b} is a single number; wanted an array (elements, features).")
    # An empty list has no width of its own: it takes that of the others.
    first = next((b for b, t in enumerate(tensors) if t.numel() > 0), None)
    if first is None:
        first = max(range(len(tensors)), key=lambda b: tensors[b].ndim)
    model = tensors[first]
    if len(model) == 0 and model.ndim == 1 and all(t.shape == (0,) for t in tensors):
        raise ValueError("all sets are empty and none tells the width of an element: give arrays of shape (0, width).")
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
            raise ValueError(f"set {b} lies on {tensor.device}, but set {first} on {model.device}.")
    return torch.cat(tensors), _offsets(torch.tensor([len(t) for t in tensors]), model.device)


def _shape(tensor: Tensor, *, short: bool = False) -> str:
    if tensor.ndim == 2:
        return f"{tensor.shape[1]}" if short else f"with {tensor.shape[1]} features"
    return f"of shape {tuple(tensor.shape[1:])}"


def _flat_weights(weights: list[Any], sizes: Tensor, model: Tensor) -> Tensor:
    if len(weights) != len(sizes):
        raise ValueError(f"found {len(weights)} arrays of weights for {len(sizes)} sets.")
    dtype = model.dtype if model.is_floating_point() else torch.get_default_dtype()
    tensors = [as_tensor(w, f"weights of set {b}").to(model.device, dtype) for b, w in enumerate(weights)]
    for b, (w, n) in enumerate(zip(tensors, sizes.tolist(), strict=True)):
        if w.shape != (n,):
            raise ValueError(f"set {b} has {n} elements, but its weights have shape {tuple(w.shape)}.")
    return torch.cat(tensors)


def _offsets(sizes: Tensor, device: torch.device) -> Tensor:
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]).to(device)


def from_padded(padded: Any, mask: Any) -> Sets:
    """See `Sets.from_padded`."""
    padded, mask = as_tensor(padded, "the padded array"), as_tensor(mask, "the mask")
    if padded.ndim < 2:
        raise ValueError(f"a padded batch has shape (B, M, ...), found {tuple(padded.shape)}.")
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
    return Sets(padded[mask], _offsets(mask.sum(1), padded.device))


def to_padded(sets: Sets, fill: float) -> tuple[Tensor, Tensor]:
    """See `Sets.to_padded`."""
    sets = sets.materialize()
    longest = int(sets.sizes.max()) if len(sets) else 0
    mask = torch.arange(longest, device=sets.device) < sets.sizes[:, None]
    padded = sets.values.new_full((len(sets), longest, *sets.values.shape[1:]), fill)
    return padded.masked_scatter(mask.reshape(*mask.shape, *[1] * (padded.ndim - 2)), sets.values), mask


def from_ids(lists: Iterable[Iterable[Any]], vocabulary: Sequence[Any] | dict[Any, int]) -> Sets:
    """See `Sets.from_ids`."""
    ids = vocabulary if isinstance(vocabulary, dict) else {token: i for i, token in enumerate(vocabulary)}
    if len(ids) != len(vocabulary):
        seen: set[Any] = set()
        twice = next(t for t in vocabulary if t in seen or seen.add(t))  # type: ignore[func-returns-value]  # add: None
        raise ValueError(f"the vocabulary has {len(vocabulary)} entries but {twice!r} stands in it twice.")
    flat: list[int] = []
    sizes: list[int] = []
    for b, tokens in enumerate(lists):
        if isinstance(tokens, str):
            raise ValueError(f"set {b} is the string {tokens!r}; wanted a list of tokens.")
        before = len(flat)
        for token in tokens:
            try:
                flat.append(ids[token])
            except KeyError:
                raise ValueError(
                    f"set {b} holds {token!r}, which is not in the vocabulary{_near(token, ids)}"
                ) from None
        sizes.append(len(flat) - before)
    return Sets(
        torch.tensor(flat, dtype=torch.long), _offsets(torch.tensor(sizes, dtype=torch.long), torch.device("cpu"))
    )


def _near(token: Any, ids: dict[Any, int]) -> str:
    known = [t for t in ids if isinstance(t, str)]
    near = difflib.get_close_matches(token, known, 3) if isinstance(token, str) else []
    return f" of {len(ids)} tokens. Near it: {', '.join(near)}." if near else f" of {len(ids)} tokens."
