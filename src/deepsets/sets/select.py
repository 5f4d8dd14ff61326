"""Choosing, joining and thinning sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .ragged import Sets


def one(sets: Sets, i: int) -> Tensor:
    """The elements of set i, (n, ...)."""
    if not -len(sets) <= i < len(sets):
        raise IndexError(f"set {i} was asked for, but the batch has {len(sets)} sets.")
    i %= len(sets)
    start, stop = sets.offsets[i : i + 2].tolist()
    return sets.values[start:stop] if sets.element_ids is None else sets.values[sets.element_ids[start:stop]]


def rows(sets: Sets, key: Any) -> Tensor:
    """The numbers of the sets that a slice, mask or list of numbers asks for."""
    count = len(sets)
    if isinstance(key, slice):
        return torch.arange(*key.indices(count), device=sets.device)
    if not isinstance(key, Tensor):
        key = torch.from_numpy(np.array(key))  # a copy: torch takes neither reversed nor read-only arrays
    key = key.to(sets.device)
    if key.dtype == torch.bool:
        if key.shape != (count,):
            raise IndexError(f"the mask has shape {tuple(key.shape)}, but the batch has {count} sets.")
        return key.nonzero().squeeze(1)
    if key.numel() == 0:
        return torch.zeros(0, dtype=torch.long, device=sets.device)
    if key.ndim != 1 or key.is_floating_point():
        raise IndexError(f"sets are chosen by a vector of integers, found shape {tuple(key.shape)} of {key.dtype}.")
    bad = ((key < -count) | (key >= count)).nonzero()
    if len(bad):
        raise IndexError(f"set {int(key[bad[0]])} was asked for, but the batch has {count} sets.")
    return key.long() % count if count else key.long()


def take(sets: Sets, which: Tensor) -> Sets:
    """The sets with these numbers, in this order. Only their elements are copied."""
    sizes = sets.sizes[which]
    offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    # Element n of the answer stands at: the start of its set in the old batch + its place within the set.
    shift = sets.offsets[which] - offsets[:-1]
    total = int(offsets[-1])
    places = torch.arange(total, device=sets.device) + torch.repeat_interleave(shift, sizes, output_size=total)
    return _at(sets, places, offsets)


def _at(sets: Sets, places: Tensor, offsets: Tensor) -> Sets:
    weights = None if sets.weights is None else sets.weights[places]
    if sets.element_ids is not None:
        return Sets._trusted(sets.values, offsets, sets.element_ids[places], weights)
    return Sets._trusted(sets.values.index_select(0, places), offsets, None, weights)


def concat(batches: Sequence[Sets]) -> Sets:
    """See `Sets.concat`."""
    if not batches:
        raise ValueError("found no batches to join.")
    first = batches[0]
    for i, batch in enumerate(batches):
        if batch.shape[1:] != first.shape[1:] or batch.dtype != first.dtype or batch.device != first.device:
            raise ValueError(
                f"batch {i} has elements of shape {batch.shape[1:]}, {batch.dtype} on {batch.device}, but batch 0 of "
                f"shape {first.shape[1:]}, {first.dtype} on {first.device}: they cannot be joined."
            )
        if (batch.weights is None) != (first.weights is None):
            raise ValueError(f"of the batches 0 and {i} only one has weights: give all of them weights, or none.")
    shared = all(b.element_ids is not None and b.values is first.values for b in batches)
    if not shared:
        batches = [b.materialize() for b in batches]
    starts = np.cumsum([0, *(b.total for b in batches)]).tolist()
    offsets = torch.cat([first.offsets[:1], *(b.offsets[1:] + s for b, s in zip(batches, starts, strict=False))])
    weights = None if first.weights is None else torch.cat([b.weights for b in batches])  # type: ignore[misc]  # all have
    if shared:
        return Sets._trusted(first.values, offsets, torch.cat([b.element_ids for b in batches]), weights)  # type: ignore[misc]
    return Sets._trusted(torch.cat([b.values for b in batches]), offsets, None, weights)


def sample(sets: Sets, k: int, generator: torch.Generator | None) -> Sets:
    """See `Sets.sample`."""
    if k < 1:
        raise ValueError(f"a sample needs k >= 1 elements of each set, found k={k}.")
    if not bool((sets.sizes > k).any()):
        return sets
    # Random keys, sorted within each set (set number + a key below 1, in double): the k smallest are the sample.
    keys = torch.rand(sets.total, generator=generator, dtype=torch.float64, device=sets.device)
    order = (sets.set_ids + keys).argsort()
    rank = torch.arange(sets.total, device=sets.device) - sets.broadcast(sets.offsets[:-1])
    sizes = sets.sizes.clamp(max=k)
    offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    return _at(sets, order[rank < k], offsets)
