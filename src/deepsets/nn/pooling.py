"""What a pooling is, and poolings by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ..sets import Sets
from .state import Parts


class Pooling(nn.Module):
    """A set to a vector, whatever the order of its members:  Sets with values (N, in) -> (B, out).

    A pooling is described by its state: `state` reads the members once, `merge` unites the states of two parts of a
    set, `finish` gives the answer. So a set may be read in pieces. Those that cannot (sorting) override `forward`.
    """

    def state(self, sets: Sets) -> Parts:
        """A few tensors (B, ...) that hold all that the pooling needs to know of each set."""
        raise ValueError(f"{self._name} needs all members of a set at once: it has no state that could be merged.")

    def finish(self, parts: Parts) -> Tensor:
        """The state to the answer, (B, out)."""
        raise ValueError(f"{self._name} has no state.")

    def merge(self, a: Parts, b: Parts) -> Parts:
        """The state of the union, set by set."""
        raise ValueError(f"{self._name} has no state that could be merged.")

    def remove(self, a: Parts, b: Parts) -> Parts:
        """The state without the elements of `b`."""
        raise ValueError(
            f"{self._name} cannot take elements away: its state does not remember what they hid. "
            "sum, mean, sqrt and std can."
        )

    def out_features(self, in_features: int) -> int:
        """How wide the answer is for members of this width."""
        return in_features

    def forward(self, sets: Sets) -> Tensor:
        """Sets with values (N, in) -> (B, out)."""
        return self.finish(self.state(sets))

    @property
    def _name(self) -> str:
        return type(self).__name__


class ConcatPooling(Pooling):
    """Several poolings side by side:  (N, in) -> (B, sum of the widths).

    >>> import torch
    >>> ConcatPooling([pooling("max"), pooling("mean")])(Sets.from_list([torch.ones(4, 3)])).shape
    torch.Size([1, 6])
    """

    def __init__(self, poolings: Sequence[Pooling]) -> None:
        super().__init__()
        self.poolings = nn.ModuleList(poolings)

    def _split(self, parts: Parts) -> list[Parts]:
        split: list[Parts] = [{} for _ in self.poolings]
        for name, part in parts.items():
            number, inner = name.split(".", 1)
            split[int(number)][inner] = part
        return split

    @staticmethod
    def _join(each: list[Parts]) -> Parts:
        return {f"{i}.{name}": part for i, parts in enumerate(each) for name, part in parts.items()}

    def state(self, sets: Sets) -> Parts:
        return self._join([p.state(sets) for p in self.poolings])  # type: ignore[operator]  # ModuleList forgets types

    def finish(self, parts: Parts) -> Tensor:
        pairs = zip(self.poolings, self._split(parts), strict=True)
        return torch.cat([p.finish(s) for p, s in pairs], dim=-1)  # type: ignore[operator]

    def merge(self, a: Parts, b: Parts) -> Parts:
        triples = zip(self.poolings, self._split(a), self._split(b), strict=True)
        return self._join([p.merge(x, y) for p, x, y in triples])  # type: ignore[operator]

    def remove(self, a: Parts, b: Parts) -> Parts:
        triples = zip(self.poolings, self._split(a), self._split(b), strict=True)
        return self._join([p.remove(x, y) for p, x, y in triples])  # type: ignore[operator]

    def out_features(self, in_features: int) -> int:
        return sum(p.out_features(in_features) for p in self.poolings)  # type: ignore[operator]

    def forward(self, sets: Sets) -> Tensor:
        return torch.cat([p(sets) for p in self.poolings], dim=-1)


_BY_NAME: dict[str, Callable[[], Pooling]] = {}
_WITH_WIDTH: dict[str, Callable[[int], Pooling]] = {}


def named(name: str, *, needs_width: bool = False) -> Callable[[type], type]:
    """Makes a pooling known by a name."""

    def register(cls: type) -> type:
        (_WITH_WIDTH if needs_width else _BY_NAME)[name] = cls
        return cls

    return register


PoolSpec = str | Pooling | Sequence[str | Pooling]


def pooling(spec: PoolSpec, width: int | None = None) -> Pooling:
    """A pooling from its name, or several names for several poolings side by side.

    >>> pooling("mean")
    MeanPooling()
    >>> pooling(["max", "mean"]).out_features(8)
    16
    >>> pooling("gated", 8).out_features(8)
    8

    `width`: the features of a member, for the poolings with weights of their own (gated, seeds, sorted).
    """
    if isinstance(spec, Pooling):
        return spec
    if not isinstance(spec, str):
        if not spec:
            raise ValueError("an empty list names no pooling.")
        return ConcatPooling([pooling(s, width) for s in spec])
    if spec in _BY_NAME:
        return _BY_NAME[spec]()
    if spec in _WITH_WIDTH:
        if width is None:
            raise ValueError(
                f"the pooling {spec!r} has weights of its own and must know the width of a member: "
                f"give the module, for example {_WITH_WIDTH[spec].__name__}(64), or pooling({spec!r}, 64)."
            )
        return _WITH_WIDTH[spec](width)
    raise ValueError(f"unknown pooling {spec!r}; known are {', '.join([*_BY_NAME, *_WITH_WIDTH])}.")
