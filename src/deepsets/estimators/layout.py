"""Members of sets with their columns: the form in which all input is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from ..sets import Sets
from .columns import Columns


def to_offsets(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    """Where sets of these sizes begin, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def place(row: int, offsets: np.ndarray) -> str:
    """Set and position of a member, in words."""
    b = int(np.searchsorted(offsets, row, side="right")) - 1
    return f"set {b}, member {row - int(offsets[b])}"


@dataclass(frozen=True)
class Members:
    """Members of B sets, one set after another; rows, names and owners are those of tables."""

    columns: Columns  # N rows, one per member
    offsets: np.ndarray  # (B + 1,)
    rows: np.ndarray | None = None  # (N,) row of each member in the table
    weights: np.ndarray | None = None  # (N,) multiplicities
    context: Columns | None = None  # B rows: set-level columns that were read from the table
    names: np.ndarray | None = None  # (B,)
    owners: np.ndarray | None = None  # number of the set of each row of the table

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
        offsets = to_offsets(self.sizes[sets])
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][sets] - offsets[:-1], np.diff(offsets))

        def part(values: Any, chosen: np.ndarray) -> Any:
            return None if values is None else values.take(chosen)

        rows, weights = part(self.rows, places), part(self.weights, places)
        return Members(
            self.columns.take(places), offsets, rows, weights, part(self.context, sets), part(self.names, sets)
        )

    def layout(self, values: np.ndarray | torch.Tensor) -> Sets:
        """Sets of the same sizes that hold `values` (N, ...)."""
        weights = None if self.weights is None else torch.from_numpy(self.weights).float()
        return Sets(torch.as_tensor(values), torch.from_numpy(self.offsets), weights=weights)


def cuts(sizes: np.ndarray, most: int) -> list[slice]:
    """Neighbouring sets with about `most` members together."""
    share = np.maximum(np.cumsum(sizes) - 1, 0) // most
    starts = [0, *(np.flatnonzero(np.diff(share) > 0) + 1).tolist(), len(sizes)]
    return [slice(a, b) for a, b in pairwise(starts) if b > a]


class Schema(NamedTuple):
    """How to read a table: set columns, feature columns, set-level columns, and the kinds seen in `fit`."""

    by: str | Sequence[str] | None
    columns: list[str] | None = None
    context: list[str] | None = None
    drop: tuple[str, ...] = ()
    kinds: dict[str, str] | None = None
