"""Selecting, joining and subsampling sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from .ragged import Ragged


class Selection(Ragged):
    """Indexing by sets, joining batches, and random subsets."""

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.materialize().values.split(self.sizes.tolist()))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple):  # scikit-learn indexes X[rows, ...]
            if len(key) != 2 or key[1] is not Ellipsis:
                raise ValueError(f"a batch of sets takes one index, or `[rows, ...]`; found {len(key)}: {key!r}.")
            key = key[0]
        if isinstance(key, int | np.integer) or (isinstance(key, Tensor) and key.ndim == 0 and key.dtype != torch.bool):
            return self._one(int(key))
        return self._take(self._rows(key))

    def _one(self, i: int) -> Tensor:
        if not -len(self) <= i < len(self):
            raise IndexError(f"set {i} was asked for, but the batch has {len(self)} sets.")
        i %= len(self)
        start, stop = self.offsets[i : i + 2].tolist()
        return self.values[start:stop] if self.element_ids is None else self.values[self.element_ids[start:stop]]

    def _rows(self, key: Any) -> Tensor:
        """Numbers of the sets that a slice, mask or list of integers selects."""
        count = len(self)
        if isinstance(key, slice):
            return torch.arange(*key.indices(count), device=self.device)
        if not isinstance(key, Tensor):
            key = torch.from_numpy(np.array(key))  # a copy: torch takes neither reversed nor read-only arrays
        key = key.to(self.device)
        if key.dtype == torch.bool:
            if key.shape != (count,):
                raise IndexError(f"the mask has shape {tuple(key.shape)}, but the batch has {count} sets.")
            return key.nonzero().squeeze(1)
        if key.numel() == 0:
            return torch.zeros(0, dtype=torch.long, device=self.device)
        if key.ndim != 1 or key.is_floating_point():
            raise IndexError(f"sets are chosen by a vector of integers, found shape {tuple(key.shape)} of {key.dtype}.")
        bad = ((key < -count) | (key >= count)).nonzero()
        if len(bad):
            raise IndexError(f"set {int(key[bad[0]])} was asked for, but the batch has {count} sets.")
        return key.long() % count if count else key.long()

    def _take(self, which: Tensor) -> Self:
        """Sets with these numbers, in this order. Only their elements are copied."""
        sizes = self.sizes[which]
        offsets = to_offsets(sizes)
        # Element n of the result is stored at: the start of its set in this batch + its place within the set.
        shift = self.offsets[which] - offsets[:-1]
        total = int(offsets[-1])
        places = torch.arange(total, device=self.device) + torch.repeat_interleave(shift, sizes, output_size=total)
        return self.take_elements(places, offsets)

    def take_elements(self, places: Tensor, offsets: Tensor) -> Self:
        """Regroup elements of this batch into new sets, with their weights.

        Parameters
        ----------
        places : Tensor
            Numbers of elements of this batch, 0 to N - 1, set after set of the result.
        offsets : Tensor
            Offsets of the new sets, from 0 to ``len(places)``. Neither is checked.
        """
        weights = None if self.weights is None else self.weights[places]
        if self.element_ids is not None:
            return self.unchecked(self.values, offsets, self.element_ids[places], weights)
        return self.unchecked(self.values.index_select(0, places), offsets, None, weights)

    @classmethod
    def concat(cls, batches: Sequence[Self]) -> Self:
        """Join the sets of several batches into one batch, in their order.

        Parameters
        ----------
        batches : sequence of Sets
            With elements of one shape, dtype and device; all of them with weights, or none.
        """
        if not batches:
            raise ValueError("found no batches to join.")
        first = batches[0]
        for i, batch in enumerate(batches):
            if batch.shape[1:] != first.shape[1:] or batch.dtype != first.dtype or batch.device != first.device:
                raise ValueError(
                    f"batch {i} has elements of shape {batch.shape[1:]}, {batch.dtype} on {batch.device}, but batch 0 "
                    f"of shape {first.shape[1:]}, {first.dtype} on {first.device}: they cannot be joined."
                )
            if (batch.weights is None) != (first.weights is None):
                raise ValueError(f"of the batches 0 and {i} only one has weights: give all of them weights, or none.")
        shared = all(b.element_ids is not None and b.values is first.values for b in batches)
        if not shared:
            batches = [b.materialize() for b in batches]
        starts = np.cumsum([0, *(b.total for b in batches)]).tolist()
        offsets = torch.cat([first.offsets[:1], *(b.offsets[1:] + s for b, s in zip(batches, starts, strict=False))])
        weights = None if first.weights is None else torch.cat([b.weights for b in batches])  # type: ignore[misc]
        if shared:
            return cls.unchecked(first.values, offsets, torch.cat([b.element_ids for b in batches]), weights)  # type: ignore[misc]
        return cls.unchecked(torch.cat([b.values for b in batches]), offsets, None, weights)

    def sample(self, k: int, *, generator: torch.Generator | None = None) -> Self:
        """Draw a random subset of every set, without replacement.

        Parameters
        ----------
        k : int
            Elements to keep of each set; sets with at most k elements stay as they are.
        generator : torch.Generator, optional
            Source of random numbers.
        """
        if k < 1:
            raise ValueError(f"a sample needs k >= 1 elements of each set, found k={k}.")
        if not bool((self.sizes > k).any()):
            return self
        # Random keys, sorted within each set (set number + a key below 1, in double): the k smallest are the sample.
        keys = torch.rand(self.total, generator=generator, dtype=torch.float64, device=self.device)
        order = (self.set_ids + keys).argsort()
        rank = torch.arange(self.total, device=self.device) - self.broadcast(self.offsets[:-1])
        return self.take_elements(order[rank < k], to_offsets(self.sizes.clamp(max=k)))


def to_offsets(sizes: Tensor) -> Tensor:
    """Convert the sizes of sets to their offsets.

    Parameters
    ----------
    sizes : Tensor of shape (B,)
        Number of members of each set.

    Returns
    -------
    Tensor of shape (B + 1,)
        Where each set begins, and where the last one ends.

    Examples
    --------
    >>> to_offsets(torch.tensor([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
