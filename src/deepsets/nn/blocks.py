"""Walking over the members of ragged sets in pieces that stay in cache."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from torch import Tensor

from ..sets import Sets

_BLOCK_BYTES = 1 << 19  # pieces of this size stay in cache, and never reach the page-fault path of malloc
_LARGE_BYTES = 1 << 19  # from this mean size on, one set after another is faster than rows of many sets with a gather


def are_large(values: Tensor, sets: Sets) -> bool:
    """Whether to walk set by set: what belongs to a set then broadcasts, and needs no gather."""
    return values.numel() * values.element_size() >= _LARGE_BYTES * max(1, len(sets))


def whole_sets(sets: Sets) -> Iterator[tuple[slice, int]]:
    """The rows of each set that is not empty, and its number."""
    for b, (start, stop) in enumerate(pairwise(sets.offsets.tolist())):
        if stop > start:
            yield slice(start, stop), b


def row_blocks(values: Tensor, sets: Sets) -> Iterator[tuple[slice, Tensor]]:
    """Pieces of the rows of values (N, ...), and the number of the set of each row."""
    ids = sets.set_ids
    step = max(1, _BLOCK_BYTES // max(1, values.element_size() * values[:1].numel()))
    for start in range(0, len(values), step):
        rows = slice(start, start + step)
        yield rows, ids[rows]
