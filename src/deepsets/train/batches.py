"""Batches of sets, balanced by elements."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..sets import Sets


class Batch(NamedTuple):
    """Sets with what is known of them. Parts that are `None` are not used.

    sets: the inputs. y: targets, (B, ...) for sets, or `Sets` of the same sizes for members.
    z: (B, z) what the sets are conditioned on. weight: (B,) how much each set counts.
    """

    sets: Sets
    y: Tensor | Sets | None = None
    z: Tensor | None = None
    weight: Tensor | None = None

    def take(self, rows: Tensor | np.ndarray) -> Batch:
        """The sets with these numbers, and all that belongs to them."""
        rows = torch.as_tensor(rows)
        y, z, weight = (None if part is None else part[rows] for part in self[1:])
        return Batch(self.sets[rows], y, z, weight)


def fingerprint(data: Batch) -> str:
    """A short text that is another one for other data."""
    digest = hashlib.blake2b(digest_size=16)
    for part in data:
        tensors = [part.values, part.offsets, part.element_ids, part.weights] if isinstance(part, Sets) else [part]
        for tensor in tensors:
            digest.update(b"-" if tensor is None else str((tensor.shape, tensor.dtype)).encode())
            if tensor is not None:
                bytes_ = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
                digest.update(bytes_.numpy())  # type: ignore[arg-type]  # numpy arrays are buffers
    return digest.hexdigest()


def balanced(sizes: np.ndarray, batch_size: int, *, seed: int, epoch: int) -> list[np.ndarray]:
    """Shuffled batches of about equal numbers of elements: the numbers of the sets in each.

    >>> [batch.tolist() for batch in balanced(np.array([1, 1, 1, 1, 6]), batch_size=2, seed=0, epoch=0)]
    [[2], [4], [3, 0, 1]]

    There are as many batches as batches of `batch_size` sets would be, or fewer where a single set is larger than a
    batch. The order depends on seed and epoch alone.
    """
    count = len(sizes)
    batches = -(-count // batch_size)
    order = np.random.default_rng([seed, epoch]).permutation(count)
    if batches <= 1:
        return [order]
    cost = sizes[order] + 1.0  # an empty set costs something too
    # Each set goes to the batch in whose share of all elements its middle lies; a batch that gets none disappears
    # into its neighbours, so nothing is ever empty.
    middle = np.cumsum(cost) - cost / 2
    share = np.minimum((middle / cost.sum() * batches).astype(int), batches - 1)
    cuts = np.flatnonzero(np.diff(share)) + 1
    return np.split(order, cuts)


def part_of(batch: np.ndarray, sizes: np.ndarray, rank: int, world: int) -> np.ndarray:
    """What a process takes of a batch: largest sets first, each to the process with the fewest elements so far."""
    if world == 1:
        return batch
    load = np.zeros(world)
    mine = []
    for number in batch[np.argsort(-sizes[batch], kind="stable")]:
        least = int(load.argmin())
        load[least] += sizes[number] + 1
        if least == rank:
            mine.append(number)
    return np.array(mine, dtype=batch.dtype)


def pieces(batch: np.ndarray, sizes: np.ndarray, most: int | None) -> list[np.ndarray]:
    """Cuts a batch where its elements pass a multiple of `most`: micro-batches whose tensors stay in cache."""
    if len(batch) == 0:  # a process may have no part in a batch of few sets
        return []
    if most is None or len(batch) < 2 or sizes[batch].sum() <= most:
        return [batch]
    share = (np.cumsum(sizes[batch]) - sizes[batch] / 2) // most
    return np.split(batch, np.flatnonzero(np.diff(share)) + 1)
