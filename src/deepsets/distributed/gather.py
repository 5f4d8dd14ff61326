"""Pieces of sets in any order to one state for each set, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ..io import TableSets
from .state_codec import Coder
from .states import States

MOST = 128 << 20  # bytes of states at a time; uniting them takes three times that for a moment


class Gather:
    """Takes pieces of sets as they come and keeps their states.

    spill: takes the states gathered so far, each set once, where they pass half of `most` bytes; the same set may come
    in several of these. Without it all are kept. rest: takes the states of some rows, and gives those to be kept.
    """

    def __init__(
        self,
        coder: Coder,
        spill: Callable[[States], None] | None = None,
        rest: Callable[[States], States] | None = None,
        most: int = MOST,
    ) -> None:
        self.coder, self.spill, self.rest, self.most = coder, spill, rest, most
        self.rows = 0
        self._kept: list[States] = []
        self._size = self._united = 0

    def add(self, part: TableSets) -> None:
        """Rows of some sets."""
        states = States(part.ids, part.sizes.astype(np.int64), part.z, self.coder.encode(part))
        self.rows += int(part.sizes.sum())
        states = states if self.rest is None else self.rest(states)
        self._kept.append(states)
        self._size += states.size
        # Uniting costs a pass over all that is kept: it waits until that is twice what the last one left. But small
        # states that stand among the large tensors of phi keep the memory between them from being used again.
        many = 32 if self._size < self.most // 8 else 256
        if self._size > max(2 * self._united, self.most // 8) or len(self._kept) >= many:
            self._unite()
            if self.spill is not None and self._size > self.most // 2:
                self._give()

    def finish(self) -> States | None:
        """The last states, also given to `spill`; None where there were none."""
        if not self._kept:
            return None
        self._unite()
        return self._give()

    def _unite(self) -> None:
        self._kept = [States.concat(self._kept).united(self.coder)]
        self._size = self._united = self._kept[0].size

    def _give(self) -> States:
        states, self._kept, self._size, self._united = self._kept[0], [], 0, 0
        if self.spill is not None:
            self.spill(states)
        return states


def gather(coder: Coder, parts: Iterable[TableSets]) -> States | None:
    """The states of all sets, in memory."""
    out = Gather(coder)
    for part in parts:
        out.add(part)
    return out.finish()
