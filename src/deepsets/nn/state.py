"""The pooled state of sets: store it, merge it, add to it, remove from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from .pooling import Pooling

Parts = dict[str, Tensor]

ELEMENTS = "elements"  # the part in which a model with append_size=True keeps the number of elements


class State:
    """Sufficient statistics of B sets: what a pooling needs to know of them, a few tensors whose first axis is the set.

    ``a + b`` is the state of the unions, set by set; ``a - b`` the state without the elements of b (for poolings that
    are sums underneath); ``state[rows]`` selects sets; ``len(state)`` is B.

    Parameters
    ----------
    pooling : Pooling
        The pooling that made the state.
    parts : mapping from str to Tensor
        Its tensors, (B, ...) each.

    Attributes
    ----------
    parts : dict from str to Tensor
        A plain dict of tensors, for any file format; :meth:`DeepSet.state` makes it a state again.

    Examples
    --------
    >>> import torch
    >>> from deepsets import Sets, nn
    >>> model = nn.DeepSet(nn.mlp(3, 16, 8), nn.mlp(8, 16, 1), pool="mean")
    >>> monday, tuesday = Sets.from_list([torch.randn(5, 3)]), Sets.from_list([torch.randn(2, 3)])
    >>> week = model.encode(monday) + model.encode(tuesday)
    >>> both = Sets.from_list([torch.cat([monday[0], tuesday[0]])])
    >>> torch.allclose(model.decode(week), model(both), atol=1e-6)
    True
    >>> {name: tuple(part.shape) for name, part in week.parts.items()}
    {'sum': (1, 8), 'count': (1,)}
    """

    def __init__(self, pooling: Pooling, parts: Mapping[str, Tensor]) -> None:
        self.pooling = pooling
        self.parts: Parts = dict(parts)

    def __len__(self) -> int:
        return len(next(iter(self.parts.values())))

    def __getitem__(self, rows: Any) -> State:
        return State(self.pooling, {name: part[rows] for name, part in self.parts.items()})

    def __add__(self, other: State) -> State:
        self._check(other, "merged")
        return self._with(self.pooling.merge(self._pooled(), other._pooled()), other, 1)

    def __sub__(self, other: State) -> State:
        self._check(other, "removed")
        return self._with(self.pooling.remove(self._pooled(), other._pooled()), other, -1)

    def _pooled(self) -> Parts:
        """Parts of the pooling itself, without the number of elements that a model may keep beside them."""
        return {name: part for name, part in self.parts.items() if name != ELEMENTS}

    def _with(self, pooled: Parts, other: State, sign: int) -> State:
        if ELEMENTS in self.parts:
            pooled = {**pooled, ELEMENTS: self.parts[ELEMENTS] + sign * other.parts[ELEMENTS]}
        return State(self.pooling, pooled)

    def finish(self) -> Tensor:
        """Compute the pooled vectors, (B, out)."""
        return self.pooling.finish(self._pooled())

    def _check(self, other: State, what: str) -> None:
        if not isinstance(other, State):
            raise TypeError(f"only a State can be {what}, found {type(other).__name__}: encode the sets first.")
        for name in {**self.parts, **other.parts}:
            here, there = (tuple(p[name].shape) if name in p else "missing" for p in (self.parts, other.parts))
            if here != there:
                raise ValueError(f"the states do not fit: the shape of {name!r} is {here} here and {there} there.")

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} {tuple(part.shape)}" for name, part in self.parts.items())
        return f"State({len(self)} sets: {parts})"
