"""Normalisation that looks at a set as a whole."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..sets import Sets
from .kernels import segment_sum
from .sequential import SetLayer


def _over_sets(per_member: Tensor, sets: Sets) -> Tensor:
    """(N, D) -> (B, D): the mean over the members; 0 for an empty set."""
    return segment_sum(per_member, sets) / sets.sizes.clamp(min=1).to(per_member.dtype)[:, None]


def _are_of_one_size(sets: Sets) -> bool:
    if torch.compiler.is_compiling() or not sets.total:
        return False
    return bool((sets.sizes == sets.total // sets.shape[0]).all())


class SetNorm(SetLayer):
    r"""One mean and one variance for all members and channels of a set, then a gain and a shift for each channel.

    >>> out = SetNorm(4)(Sets.from_list([3 + 5 * torch.randn(50, 4)]))
    >>> torch.allclose(out.values.mean(), torch.zeros(()), atol=1e-5)
    True

    Unlike layer norm on members it keeps their differences in length; unlike batch norm it does not look at other
    sets (Zhang et al., 2022).
    """

    def __init__(self, features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, sets: Sets) -> Sets:
        sets = sets.materialize()
        values = self._of_one_size(sets) if _are_of_one_size(sets) else self._of_any_size(sets)
        bias, weight = self.bias.to(values.dtype), self.weight.to(values.dtype)  # under autocast values may be halves
        return sets.with_values(values.mul(weight).add_(bias))

    def _of_any_size(self, sets: Sets) -> Tensor:
        mean = _over_sets(sets.values.mean(1, keepdim=True), sets)
        centred = sets.values - sets.broadcast(mean)
        variance = _over_sets(centred.square().mean(1, keepdim=True), sets)
        return centred * sets.broadcast((variance + self.eps).rsqrt())

    def _of_one_size(self, sets: Sets) -> Tensor:
        """The rows of a set side by side are one row of a layer norm: half the time, forward and backward."""
        rows = sets.values.reshape(sets.shape[0], -1)
        return F.layer_norm(rows, rows.shape[1:], eps=self.eps).view_as(sets.values)


class Standardize(SetLayer):
    """Every axis of a set to mean 0, the set as a whole to variance 1: what the paper does to point clouds.

    >>> out = Standardize()(Sets.from_list([3 + 5 * torch.randn(50, 3)]))
    >>> torch.allclose(out.values.mean(0), torch.zeros(3), atol=1e-5)
    True

    One factor for all axes keeps the shape. Sets whose members are all alike become 0.
    """

    def __init__(self, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, sets: Sets) -> Sets:
        sets = sets.materialize()
        centred = sets.values - sets.broadcast(_over_sets(sets.values, sets))
        variance = _over_sets(centred.square().mean(1, keepdim=True), sets)
        return sets.with_values(centred * sets.broadcast((variance + self.eps).rsqrt()))


class SetDropout(SetLayer):
    """Drops a channel in all members of a set at once (Deep Sets, appendix G).

    >>> layer = SetDropout(0.5)
    >>> out = layer(Sets.from_list([torch.ones(4, 6)])).values
    >>> bool((out == out[:1]).all())
    True

    Ordinary dropout lets the other members, and the pooling, fill the gap.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"the probability of a drop must be in [0, 1), found {p}.")
        self.p = p

    def forward(self, sets: Sets) -> Sets:
        if not self.training or self.p == 0:
            return sets
        sets = sets.materialize()
        keep = torch.full((sets.shape[0], sets.width), 1 - self.p, dtype=sets.dtype, device=sets.device).bernoulli()
        return sets.with_values(sets.values * sets.broadcast(keep / (1 - self.p)))

    def extra_repr(self) -> str:
        return f"p={self.p}"
