"""Poolings that sort the members of each channel: quantiles, and learned weights on the sorted values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import torch
from torch import Tensor, nn

from ..sets import Sets
from .kernels import check_rows, segment_mean
from .pooling import Pooling, named
from .sequential import Factory


def _sort_members(sets: Sets) -> Tensor:
    """(N, D) -> (N, D): every channel sorted, ascending, within each set; the sets stay in their places."""
    check_rows(sets.values)
    by_value = sets.values.argsort(dim=0, stable=True)
    by_set = sets.set_ids[by_value].argsort(dim=0, stable=True)  # stable: within a set the values stay sorted
    return sets.values.gather(0, by_value.gather(0, by_set))


def _unweighted(sets: Sets, name: str) -> Sets:
    if sets.weights is not None:
        raise ValueError(f"{name} does not support weights: a sorted value has one place, not a multiplicity.")
    return sets.materialize()


class QuantilePooling(Pooling):
    """Quantiles of every channel, interpolated linearly; 0 for an empty set.

    Costs two sorts of the members. Weights are refused.

    Parameters
    ----------
    q : sequence of float, default=(0.25, 0.5, 0.75)
        Quantiles, between 0 and 1. The channels of the first quantile come first in the output.

    Shape
    -----
    Sets with values (N, D) -> (B, len(q) * D).

    Examples
    --------
    >>> QuantilePooling([0.5])(Sets.from_list([[[1.0], [5.0], [2.0]], [[4.0], [8.0]]]))
    tensor([[2.],
            [6.]])
    """

    def __init__(self, q: Sequence[float] = (0.25, 0.5, 0.75)) -> None:
        super().__init__()
        if not all(0 <= p <= 1 for p in q) or not q:
            raise ValueError(f"quantiles must be between 0 and 1, found {list(q)}.")
        self.q = tuple(q)

    def forward(self, sets: Sets) -> Tensor:
        """Pool sets with values (N, D) to vectors (B, len(q) * D)."""
        sets = _unweighted(sets, self._name)
        values = torch.cat([_sort_members(sets), sets.values.new_zeros(1, sets.width)])  # the row for empty sets
        empty = (sets.sizes == 0)[:, None]
        out = []
        for q in self.q:
            place = q * (sets.sizes - 1).clamp(min=0).to(sets.dtype)
            low = (sets.offsets[:-1] + place.floor().long()).clamp(max=sets.total)
            high = torch.minimum(low + 1, (sets.offsets[1:] - 1).clamp(min=0))
            mixed = torch.lerp(values[low], values[high], (place - place.floor())[:, None])
            out.append(torch.where(empty, 0, mixed))
        return torch.cat(out, dim=-1)

    def out_features(self, in_features: int) -> int:
        """Return the width of the pooled vector for members of this width."""
        return in_features * len(self.q)

    def extra_repr(self) -> str:
        """Describe the pooling in its `repr`."""
        return f"q={self.q}"


@named("sorted", needs_width=True)
class SortPooling(Pooling):
    r"""Learned weights on the sorted members (featurewise sort pooling), $\frac1n\sum_k f(\tfrac{k}{n-1})\, x_{(k)}$.

    Each channel has its own f, piecewise linear, so sets of any size can be pooled; f = 1 (the mean) at the start of
    training. It can become any mixture of quantiles: minimum, median, range. 0 for an empty set. Weights are refused.

    Parameters
    ----------
    features : int
        Size of each member.
    knots : int, default=20
        Number of knots of f, at least 2.

    Shape
    -----
    Sets with values (N, features) -> (B, features).

    Examples
    --------
    >>> SortPooling(3)(Sets.from_list([torch.randn(5, 3), torch.randn(2, 3)])).shape
    torch.Size([2, 3])
    """

    def __init__(self, features: int, knots: int = 20, **factory: Unpack[Factory]) -> None:
        super().__init__()
        if knots < 2:
            raise ValueError(f"a piecewise linear function needs at least 2 knots, found {knots}.")
        self.weight = nn.Parameter(torch.empty(knots, features, **factory))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the weights again: the pooling becomes the mean."""
        nn.init.ones_(self.weight)

    def forward(self, sets: Sets) -> Tensor:
        """Pool sets with values (N, features) to vectors (B, features)."""
        sets = _unweighted(sets, self._name)
        rank = torch.arange(sets.total, device=sets.device) - sets.broadcast(sets.offsets[:-1])
        last = (sets.sizes - 1).clamp(min=1).to(sets.dtype)
        place = rank / sets.broadcast(last) * (len(self.weight) - 1)
        low = place.floor().clamp(max=len(self.weight) - 2).long()
        weight = torch.lerp(self.weight[low], self.weight[low + 1], (place - low)[:, None].to(self.weight.dtype))
        return segment_mean(_sort_members(sets) * weight, sets)

    def extra_repr(self) -> str:
        """Describe the pooling in its `repr`."""
        return f"features={self.weight.shape[1]}, knots={self.weight.shape[0]}"
