"""Where the work is done."""

from __future__ import annotations

from typing import NamedTuple

from .local import Local
from .ray import Ray


class Engine(NamedTuple):
    """`local`: processes of this machine. `ray`: a Ray cluster at `address`, or one made for the run.

    >>> Engine("ray", workers=8, address="auto").name
    'ray'

    workers: how many, one for each core by default.
    """

    name: str = "local"
    workers: int | None = None
    address: str | None = None

    def open(self) -> Local | Ray:
        """What does the work, for a `with` statement; its `run(worker, args, items)` makes `worker(*args)` once in each
        process and gives its answers for all items.
        """
        if self.name not in ("local", "ray"):
            raise ValueError(f"unknown engine {self.name!r}; known are local and ray.")
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"at least one worker is needed, found {self.workers}.")
        if self.name == "ray":
            return Ray(self.workers, self.address)
        if self.address is not None:
            raise ValueError("an address is for the engine ray.")
        return Local(self.workers)
