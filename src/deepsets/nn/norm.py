"""Normalisation and dropout that treat a set as a whole."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..sets import Sets
from .kernels import segment_broadcast, segment_mean
from .sequential import Factory, SetLayer


def _have_equal_sizes(sets: Sets) -> bool:
    if torch.compiler.is_compiling() or not sets.total:
        return False
    return bool((sets.sizes == sets.total // sets.shape[0]).all())


class SetNorm(SetLayer):
    r"""Normalise all numbers of a set by one mean and one variance, then scale and shift each channel.

    Unlike layer norm on members it keeps their differences in length; unlike batch norm it does not depend on other
    sets (Zhang et al., 2022). Every member counts once, whatever its weight.

    Parameters
    ----------
    features : int
        Size of each member.
    eps : float, default=1e-5
        Added to the variance.

    Shape
    -----
    Sets with values (N, features) -> Sets with values (N, features).

    Examples
    --------
    >>> out = SetNorm(4)(Sets.from_list([3 + 5 * torch.randn(50, 4)]))
    >>> torch.allclose(out.values.mean(), torch.zeros(()), atol=1e-5)
    True
    """

    def __init__(self, features: int, eps: float = 1e-5, **factory: Unpack[Factory]) -> None:
        super().__init__()
        self.features, self.eps = features, eps
        self.weight = nn.Parameter(torch.empty(features, **factory))
        self.bias = nn.Parameter(torch.empty(features, **factory))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise scale and shift again: 1 and 0."""
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, sets: Sets) -> Sets:
        """Map sets with values (N, features) to sets with values (N, features)."""
        sets = sets.materialize()
        values = self._equal_sizes(sets) if _have_equal_sizes(sets) else self._any_sizes(sets)
        bias, weight = self.bias.to(values.dtype), self.weight.to(values.dtype)  # values may be bfloat16 in autocast
        return sets.with_values(values.mul(weight).add_(bias))

    def _any_sizes(self, sets: Sets) -> Tensor:
        mean = segment_mean(sets.values.mean(1, keepdim=True), sets)
        centred = sets.values - segment_broadcast(mean, sets)
        variance = segment_mean(centred.square().mean(1, keepdim=True), sets)
        return centred * segment_broadcast((variance + self.eps).rsqrt(), sets)

    def _equal_sizes(self, sets: Sets) -> Tensor:
        """Treat all members of a set as one row of a layer norm: half the time, forward and backward."""
        rows = sets.values.reshape(sets.shape[0], -1)
        return F.layer_norm(rows, rows.shape[1:], eps=self.eps).view_as(sets.values)

    def extra_repr(self) -> str:
        """Describe the layer in its `repr`."""
        return f"features={self.features}, eps={self.eps}"


class Standardize(SetLayer):
    """Centre every axis of a set and scale the set as a whole to variance 1, as the paper does with point clouds.

    One factor for all axes keeps the shape. Sets with equal members become 0. Every member counts once.

    Parameters
    ----------
    eps : float, default=1e-6
        As for :class:`SetNorm`.

    Shape
    -----
    Sets with values (N, D) -> Sets with values (N, D).

    Examples
    --------
    >>> out = Standardize()(Sets.from_list([3 + 5 * torch.randn(50, 3)]))
    >>> torch.allclose(out.values.mean(0), torch.zeros(3), atol=1e-5)
    True
    """

    def __init__(self, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, sets: Sets) -> Sets:
        """Map sets with values (N, D) to sets with values (N, D)."""
        sets = sets.materialize()
        centred = sets.values - segment_broadcast(segment_mean(sets.values, sets), sets)
        variance = segment_mean(centred.square().mean(1, keepdim=True), sets)
        return sets.with_values(centred * segment_broadcast((variance + self.eps).rsqrt(), sets))

    def extra_repr(self) -> str:
        """Describe the layer in its `repr`."""
        return f"eps={self.eps}"


class SetDropout(SetLayer):
    """Drop a channel in all members of a set at once (Deep Sets, appendix G).

    With ordinary dropout, pooling would recover a dropped value from the other members.

    Parameters
    ----------
    p : float, default=0.5
        Probability of dropping a channel of a set, below 1.

    Shape
    -----
    Sets with values (N, D) -> Sets with values (N, D).

    Examples
    --------
    >>> out = SetDropout(0.5)(Sets.from_list([torch.ones(4, 6)])).values
    >>> bool((out == out[:1]).all())
    True
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"the dropout probability must be in [0, 1), found {p}.")
        self.p = p

    def forward(self, sets: Sets) -> Sets:
        """Map sets with values (N, D) to sets with values (N, D)."""
        if not self.training or self.p == 0:
            return sets
        sets = sets.materialize()
        keep = torch.full((sets.shape[0], sets.width), 1 - self.p, dtype=sets.dtype, device=sets.device).bernoulli()
        return sets.with_values(sets.values * segment_broadcast(keep / (1 - self.p), sets))

    def extra_repr(self) -> str:
        """Describe the layer in its `repr`."""
        return f"p={self.p}"
