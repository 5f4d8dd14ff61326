"""The interface of poolings, the pooled state of sets, several poolings side by side, and poolings by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from ..sets import Sets
from .sequential import Factory, reset_children

Parts = dict[str, Tensor]
ELEMENTS = "elements"  # the part in which a model with append_size=True keeps the number of elements


class Pooling(nn.Module):
    """Base class of permutation-invariant poolings (aggregations): sets with values (N, in) -> (B, out).

    A pooling is defined by its state: `state` reads the members once, `merge` unites the states of two parts of a set,
    `finish` gives the pooled vector. So a set can be read in pieces, on several machines. Poolings that need all
    members at once (sorting) override `forward` instead.

    Attributes
    ----------
    part_names : tuple of str
        Names of the tensors of its state; empty for a pooling without a state.
    selects : bool
        Whether the state holds values of members as they are, so that no precision is lost in computing it.
    """

    part_names: tuple[str, ...] = ()
    selects: bool = False

    def state(self, sets: Sets, dtype: torch.dtype | None = None) -> Parts:
        """Reduce the members of each set to the state.

        Parameters
        ----------
        sets : Sets
            With values (N, in).
        dtype : torch.dtype, optional
            Precision of the reduction (default: that of the values).

        Returns
        -------
        dict from str to Tensor
            (B, ...) each.
        """
        raise ValueError(f"{self._name} needs all members of a set at once: it has no state that could be merged.")

    def finish(self, parts: Parts) -> Tensor:
        """Compute the pooled vectors, (B, out), from a state."""
        raise ValueError(f"{self._name} has no state.")

    def merge(self, a: Parts, b: Parts) -> Parts:
        """Compute the state of the unions of two batches of sets, set by set."""
        raise ValueError(f"{self._name} has no state that could be merged.")

    def remove(self, a: Parts, b: Parts) -> Parts:
        """Compute the state of `a` without the elements of `b`, set by set."""
        raise ValueError(
            f"{self._name} cannot remove elements: its state is not invertible. sum, mean, sqrt and std can."
        )

    def out_features(self, in_features: int) -> int:
        """Return the width of the pooled vector for members of this width."""
        return in_features

    def reset_parameters(self) -> None:
        """Initialise all parameters again."""
        reset_children(self)

    def forward(self, sets: Sets) -> Tensor:
        """Pool sets with values (N, in) to vectors (B, out)."""
        return self.finish(self.state(sets))

    @property
    def _name(self) -> str:
        return type(self).__name__


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
    >>> from deepsets import nn
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


class ConcatPooling(Pooling):
    """Several poolings side by side.

    Parameters
    ----------
    poolings : sequence of Pooling
        Their outputs are concatenated in this order.

    Shape
    -----
    Sets with values (N, in) -> (B, sum of the widths).

    Examples
    --------
    >>> ConcatPooling([pooling("max"), pooling("mean")])(Sets.from_list([torch.ones(4, 3)])).shape
    torch.Size([1, 6])
    """

    def __init__(self, poolings: Sequence[Pooling]) -> None:
        super().__init__()
        self.poolings = nn.ModuleList(poolings)
        if all(p.part_names for p in poolings):
            self.part_names = tuple(f"{i}.{name}" for i, p in enumerate(poolings) for name in p.part_names)

    def _split(self, parts: Parts) -> list[Parts]:
        split: list[Parts] = [{} for _ in self.poolings]
        for name, part in parts.items():
            number, inner = name.split(".", 1)
            split[int(number)][inner] = part
        return split

    @staticmethod
    def _join(each: list[Parts]) -> Parts:
        return {f"{i}.{name}": part for i, parts in enumerate(each) for name, part in parts.items()}

    def state(self, sets: Sets, dtype: torch.dtype | None = None) -> Parts:
        """Reduce the members of each set to the states of all poolings."""
        wide = sets if dtype is None else sets.to(dtype)  # once for all poolings that compute
        return self._join([p.state(sets if p.selects else wide, dtype) for p in self.poolings])  # type: ignore[operator]

    def finish(self, parts: Parts) -> Tensor:
        """Compute the pooled vectors, (B, out), from a state."""
        pairs = zip(self.poolings, self._split(parts), strict=True)
        return torch.cat([p.finish(s) for p, s in pairs], dim=-1)  # type: ignore[operator]

    def merge(self, a: Parts, b: Parts) -> Parts:
        """Compute the state of the unions of two batches of sets, set by set."""
        triples = zip(self.poolings, self._split(a), self._split(b), strict=True)
        return self._join([p.merge(x, y) for p, x, y in triples])  # type: ignore[operator]

    def remove(self, a: Parts, b: Parts) -> Parts:
        """Compute the state of `a` without the elements of `b`, set by set."""
        triples = zip(self.poolings, self._split(a), self._split(b), strict=True)
        return self._join([p.remove(x, y) for p, x, y in triples])  # type: ignore[operator]

    def out_features(self, in_features: int) -> int:
        """Return the width of the pooled vector for members of this width."""
        return sum(p.out_features(in_features) for p in self.poolings)  # type: ignore[operator]

    def forward(self, sets: Sets) -> Tensor:
        """Pool sets with values (N, in) to vectors (B, out)."""
        return torch.cat([p(sets) for p in self.poolings], dim=-1)


_BY_NAME: dict[str, Callable[[], Pooling]] = {}
_WITH_WIDTH: dict[str, Callable[..., Pooling]] = {}


def named(name: str, *, needs_width: bool = False) -> Callable[[type], type]:
    """Register a pooling under a name."""

    def register(cls: type) -> type:
        (_WITH_WIDTH if needs_width else _BY_NAME)[name] = cls
        return cls

    return register


PoolSpec = str | Pooling | Sequence[str | Pooling]


def pooling(spec: PoolSpec, width: int | None = None, **factory: Unpack[Factory]) -> Pooling:
    """Build a pooling from its name, or several side by side from several names.

    Parameters
    ----------
    spec : str, Pooling or sequence of them
        "sum", "mean", "sqrt", "std", "max", "min", "logsumexp", "gated", "seeds" or "sorted".
    width : int, optional
        Features of a member, needed by poolings with parameters ("gated", "seeds", "sorted").

    Returns
    -------
    Pooling

    Examples
    --------
    >>> pooling("mean")
    MeanPooling()
    >>> pooling(["max", "mean"]).out_features(8)
    16
    >>> pooling("gated", 8).out_features(8)
    8
    """
    if isinstance(spec, Pooling):
        return spec
    if not isinstance(spec, str):
        if not spec:
            raise ValueError("an empty list names no pooling.")
        return ConcatPooling([pooling(s, width, **factory) for s in spec])
    if spec in _BY_NAME:
        return _BY_NAME[spec]()
    if spec in _WITH_WIDTH:
        if width is None:
            example: Any = _WITH_WIDTH[spec]
            raise ValueError(
                f"the pooling {spec!r} has parameters and must know the width of a member: "
                f"give the module, for example {example.__name__}(64), or pooling({spec!r}, 64)."
            )
        return _WITH_WIDTH[spec](width, **factory)
    raise ValueError(
        f"unknown pooling {spec!r}; known are {', '.join([*_BY_NAME, *_WITH_WIDTH])} (attention: gated, seeds)."
    )
