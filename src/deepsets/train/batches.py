"""Batches of sets, and where a training takes them from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from ..sets import Sets
from .process import seeded


class Batch(NamedTuple):
    """Sets with their targets, context and weights.

    Attributes
    ----------
    sets : Sets
        The inputs.
    y : Tensor or Sets, optional
        Targets: (B, ...) for sets, or `Sets` of the same sizes for members.
    z : Tensor, optional
        (B, z) vectors that the sets are conditioned on.
    weight : Tensor, optional
        (B,) weight of each set in the loss.
    """

    sets: Sets
    y: Tensor | Sets | None = None
    z: Tensor | None = None
    weight: Tensor | None = None

    def take(self, rows: Tensor | np.ndarray | slice) -> Batch:
        """Select sets, with everything that belongs to them.

        Parameters
        ----------
        rows : Tensor, array or slice
            Positions of the sets.
        """
        if not isinstance(rows, slice):
            rows = torch.as_tensor(rows, device=self.sets.device)
        y, z, weight = (None if part is None else part[rows] for part in self[1:])
        return Batch(self.sets[rows], y, z, weight)

    def to(self, device: torch.device) -> Batch:
        """Move all parts to a device; parts that are there already are not copied."""
        parts = (part if part is None or part.device == device else part.to(device) for part in self)
        return Batch(*parts)  # type: ignore[arg-type]


@runtime_checkable
class BatchSource(Protocol):
    """What `train` asks of data that is neither a `Batch` nor a plain collection of batches."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """JSON-able description of the data; a checkpoint is resumed only if it has the same one."""
        ...

    def epoch(self, epoch: int, *, seed: int, start: int, rank: int, world: int) -> tuple[int, Iterator[Batch | None]]:
        """Batches of one epoch for one process.

        Parameters
        ----------
        epoch, seed : int
            The order may depend on these two only, so that an interrupted epoch can be repeated.
        start : int
            Steps of the epoch that are done already; the iterator begins after them.
        rank, world : int
            This process and the number of processes.

        Returns
        -------
        steps : int
            Steps in the whole epoch, the same in every process.
        batches : iterator
            `steps - start` batches; None where this process has no part in a step. Each is drawn just before it is
            used, with the global generator seeded for its step.
        """
        ...


def as_source(data: Any, batch_size: int) -> BatchSource:
    """A source of batches for any data that `train` takes."""
    if isinstance(data, Batch):
        return _InMemory(data, batch_size)
    if isinstance(data, BatchSource):
        return data
    if hasattr(data, "__len__") and hasattr(data, "__iter__"):
        return _Listed(data)
    raise TypeError(
        f"found data of type {type(data).__name__}; expected a Batch, a collection of batches with a length (a list, "
        "a DataLoader), or an object with `settings` and `epoch` (see BatchSource)."
    )


class _InMemory:
    """Shuffled batches of sets in memory, about equal in their number of elements."""

    def __init__(self, data: Batch, batch_size: int) -> None:
        self.data, self.batch_size, self.sizes = data, batch_size, data.sets.sizes.cpu().numpy()
        if len(self.sizes) == 0:
            raise ValueError("there are no sets to train on.")

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"sets": len(self.sizes), "batch_size": self.batch_size, "data": fingerprint(self.data)}

    def epoch(self, epoch: int, *, seed: int, start: int, rank: int, world: int) -> tuple[int, Iterator[Batch | None]]:
        batches = balanced(self.sizes, self.batch_size, seed=seed, epoch=epoch)
        rows = (share_of(batch, self.sizes, rank, world) for batch in batches[start:])
        return len(batches), (self.data.take(mine) if len(mine) else None for mine in rows)


class _Listed:
    """A collection of batches that is iterated over in every epoch."""

    def __init__(self, data: Any) -> None:
        self.data = data
        if len(data) == 0:
            raise ValueError("there are no batches to train on.")

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"batches": len(self.data)}

    def epoch(self, epoch: int, *, seed: int, start: int, rank: int, world: int) -> tuple[int, Iterator[Batch | None]]:
        # A DataLoader draws its order when the first batch is asked for: here, where the seed is that of the epoch.
        with seeded(hash((seed, epoch))):
            batches = iter(self.data)
            passed = [next(batches) for _ in range(max(start, 1))]
        first = passed if start == 0 else []
        return len(self.data), (_share_of_batch(batch, rank, world) for part in (first, batches) for batch in part)


def _share_of_batch(batch: Batch, rank: int, world: int) -> Batch | None:
    if world == 1:
        return batch
    mine = share_of(np.arange(len(batch.sets)), batch.sets.sizes.cpu().numpy(), rank, world)
    return batch.take(mine) if len(mine) else None


def fingerprint(data: Batch) -> str:
    """Hash of all tensors of a batch."""
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
    """Shuffle sets into batches of about equal numbers of elements.

    Parameters
    ----------
    sizes : array of int
        Number of elements of each set.
    batch_size : int
        Sets per batch on average. There are as many batches as batches of `batch_size` sets would be, or fewer where
        a single set is larger than a batch.
    seed, epoch : int
        The order depends on these two alone.

    Returns
    -------
    list of array
        Positions of the sets of each batch; none is empty.

    Examples
    --------
    >>> [batch.tolist() for batch in balanced(np.array([1, 1, 1, 1, 6]), batch_size=2, seed=0, epoch=0)]
    [[2], [4], [3, 0, 1]]
    """
    count = len(sizes)
    batches = -(-count // batch_size)
    order = np.random.default_rng([seed, epoch]).permutation(count)
    if batches <= 1:
        return [order]
    cost = sizes[order] + 1.0  # an empty set costs something too
    # Each set goes to the batch in whose share of all elements its middle lies; a batch that gets none disappears.
    middle = np.cumsum(cost) - cost / 2
    share = np.minimum((middle / cost.sum() * batches).astype(int), batches - 1)
    cuts = np.flatnonzero(np.diff(share)) + 1
    return np.split(order, cuts)


def share_of(batch: np.ndarray, sizes: np.ndarray, rank: int, world: int) -> np.ndarray:
    """The sets of a batch that one process works on: largest first, each to the process with the fewest elements."""
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


def pieces(sizes: np.ndarray, most: int) -> list[slice]:
    """Cut a batch of sets of these sizes where its elements pass a multiple of `most`."""
    share = (np.cumsum(sizes) - sizes / 2) // most
    cuts = [0, *(np.flatnonzero(np.diff(share)) + 1).tolist(), len(sizes)]
    return [slice(start, stop) for start, stop in pairwise(cuts)]


def micro_batches(batch: Batch, most: int | None) -> Iterable[Batch]:
    """Cut a batch with more than `most` elements into micro-batches whose tensors stay in cache."""
    if most is None or len(batch.sets) < 2 or batch.sets.total <= most:
        return [batch]
    return (batch.take(piece) for piece in pieces(batch.sets.sizes.cpu().numpy(), most))


def split_rows(count: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split sets at random into training and validation.

    Parameters
    ----------
    count : int
        Number of sets.
    share : float
        Share of the sets that is held out.
    seed : int
        Seed of the split.

    Returns
    -------
    rows, held : array of int
        Sorted positions of the training and of the held-out sets.
    """
    order = np.random.default_rng([seed, 1]).permutation(count)
    held = round(count * share)
    return np.sort(order[held:]), np.sort(order[:held])
