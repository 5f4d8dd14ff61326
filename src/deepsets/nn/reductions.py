"""Poolings without parameters. All are defined, with finite gradients, for empty sets."""

from __future__ import annotations

import torch
from torch import Tensor

from ..sets import Sets
from .kernels import (
    segment_exp_sum,
    segment_logsumexp,
    segment_max,
    segment_mean,
    segment_min,
    segment_moments,
    segment_std,
    segment_sum,
)
from .kernels_torch import at_least, deviation, log_of_sum
from .pooling import Parts, Pooling, named


def _cast(sets: Sets, dtype: torch.dtype | None) -> Sets:
    return sets if dtype is None else sets.to(dtype)


class _LinearPooling(Pooling):
    """A sum of the members times a number that depends on their count only.

    Linear in the members, so a linear map may run after the pooling, on B rows instead of N (see `DeepSet`).
    """

    part_names = ("sum", "count")

    def state(self, sets: Sets, dtype: torch.dtype | None = None) -> Parts:
        """Reduce the members of each set to the state."""
        sets = _cast(sets, dtype)
        return {"sum": segment_sum(sets.values, sets, sets.weights), "count": sets.counts}

    def merge(self, a: Parts, b: Parts) -> Parts:
        """Compute the state of the unions of two batches of sets, set by set."""
        return {"sum": a["sum"] + b["sum"], "count": a["count"] + b["count"]}

    def remove(self, a: Parts, b: Parts) -> Parts:
        """Compute the state of `a` without the elements of `b`, set by set."""
        return {"sum": a["sum"] - b["sum"], "count": _left(a["count"], b["count"])}


@named("sum")
class SumPooling(_LinearPooling):
    r"""Sum of the members, $\sum_i w_i x_i$; 0 for an empty set.

    Shape
    -----
    Sets with values (N, D) -> (B, D).

    Examples
    --------
    >>> SumPooling()(Sets.from_list([[[1.0], [2.0]], []]))
    tensor([[3.],
            [0.]])
    """

    def finish(self, parts: Parts) -> Tensor:
        """Compute the pooled vectors, (B, D), from a state."""
        return parts["sum"]

    def forward(self, sets: Sets) -> Tensor:
        """Sum the members of each set, (B, D)."""
        return segment_sum(sets.values, sets, sets.weights)


@named("mean")
class MeanPooling(_LinearPooling):
    r"""Mean of the members, $\sum_i w_i x_i / \sum_i w_i$; 0 for an empty set.

    Shape
    -----
    Sets with values (N, D) -> (B, D).
    """

    def finish(self, parts: Parts) -> Tensor:
        """Compute the pooled vectors, (B, D), from a state."""
        return parts["sum"] / at_least(parts["count"])[:, None]

    def forward(self, sets: Sets) -> Tensor:
        """Average the members of each set, (B, D), in one pass."""
        return segment_mean(sets.values, sets, sets.weights)


@named("sqrt")
class SqrtSumPooling(_LinearPooling):
    r"""Sum over the root of the count, $\sum_i w_i x_i / \sqrt{\sum_i w_i}$; 0 for an empty set.

    Keeps the variance of independent members.

    Shape
    -----
    Sets with values (N, D) -> (B, D).
    """

    def finish(self, parts: Parts) -> Tensor:
        """Compute the pooled vectors, (B, D), from a state."""
        return parts["sum"] / at_least(parts["count"]).sqrt()[:, None]


@named("std")
class StdPooling(Pooling):
    r"""Standard deviation, $\sqrt{\sum_i w_i (x_i - \bar x)^2 / \sum_i w_i}$; 0 for sets of no or one member.

    Without Bessel's correction. The state is (count, mean, sum of squared deviations), merged by Chan's formula:
    no catastrophic cancellation.

    Shape
    -----
    Sets with values (N, D) -> (B, D).
    """

    part_names = ("count", "mean", "squares")

    def state(self, sets: Sets, dtype: torch.dtype | None = None) -> Parts:
        """Reduce the members of each set to the state."""
        sets = _cast(sets.materialize(), dtype)
        mean, squares = segment_moments(sets.values, sets, sets.weights)
        return {"count": sets.counts, "mean": mean, "squares": squares}

    def finish(self, parts: Parts) -> Tensor:
        """Compute the pooled vectors, (B, D), from a state."""
        return deviation(parts["squares"], parts["count"])

    def forward(self, sets: Sets) -> Tensor:
        """Compute the deviation of each set, (B, D), in one operation."""
        sets = sets.materialize()
        return segment_std(sets.values, sets, sets.weights)

    def merge(self, a: Parts, b: Parts) -> Parts:
        """Compute the state of the unions of two batches of sets, set by set."""
        count = a["count"] + b["count"]
        share = (b["count"] / at_least(count))[:, None]
        delta = b["mean"] - a["mean"]
        squares = a["squares"] + b["squares"] + delta.square() * share * a["count"][:, None]
        return {"count": count, "mean": a["mean"] + delta * share, "squares": squares}

    def remove(self, a: Parts, b: Parts) -> Parts:
        """Compute the state of `a` without the elements of `b`, set by set."""
        count = _left(a["count"], b["count"])
        some = (count > 0)[:, None]
        share = (b["count"] / at_least(count))[:, None]
        mean = torch.where(some, a["mean"] + (a["mean"] - b["mean"]) * share, 0)
        delta = (b["mean"] - mean).square() * (b["count"] * count / at_least(a["count"]))[:, None]
        squares = torch.where(some, (a["squares"] - b["squares"] - delta).clamp(min=0), 0)
        return {"count": count, "mean": mean, "squares": squares}


class _Extreme(Pooling):
    """Maximum or minimum. A member of weight 0 is absent; other weights make no difference."""

    part_names = ("best", "count")
    selects = True
    sign: int

    def state(self, sets: Sets, dtype: torch.dtype | None = None) -> Parts:
        """Reduce the members of each set to the state; a maximum is exact in any precision, so only it is cast."""
        sets = sets.materialize()
        values, there = sets.values, sets.sizes
        if sets.weights is not None:
            present = sets.weights > 0
            there = there.new_zeros(sets.shape[0]).index_add(0, sets.set_ids, present.to(there.dtype))
            values = torch.where(present[:, None], values, -self.sign * torch.inf)
        best = segment_max(values, sets) if self.sign > 0 else segment_min(values, sets)
        if sets.weights is not None:
            best = torch.where((there > 0)[:, None], best, 0)
        return {"best": best if dtype is None else best.to(dtype), "count": there}

    def finish(self, parts: Parts) -> Tensor:
        """Compute the pooled vectors, (B, D), from a state."""
        return parts["best"]

    def merge(self, a: Parts, b: Parts) -> Parts:
        """Compute the state of the unions of two batches of sets, set by set."""
        best = torch.maximum(a["best"], b["best"]) if self.sign > 0 else torch.minimum(a["best"], b["best"])
        best = torch.where(a["count"][:, None] == 0, b["best"], best)
        best = torch.where(b["count"][:, None] == 0, a["best"], best)
        return {"best": best, "count": a["count"] + b["count"]}


@named("max")
class MaxPooling(_Extreme):
    r"""Maximum of every channel, $\max_i x_i$; 0 for an empty set. Members that tie share the gradient.

    Shape
    -----
    Sets with values (N, D) -> (B, D).
    """

    sign = 1


@named("min")
class MinPooling(_Extreme):
    r"""Minimum of every channel, $\min_i x_i$; otherwise as :class:`MaxPooling`."""

    sign = -1


@named("logsumexp")
class LogSumExpPooling(Pooling):
    r"""Smooth maximum, $\log \sum_i w_i e^{x_i}$; 0 for an empty set.

    Shape
    -----
    Sets with values (N, D) -> (B, D).
    """

    part_names = ("peak", "exp")

    def state(self, sets: Sets, dtype: torch.dtype | None = None) -> Parts:
        """Reduce the members of each set to the state."""
        sets = _cast(sets.materialize(), dtype)
        peak, total = segment_exp_sum(sets.values, sets, sets.weights)
        return {"peak": peak, "exp": total}

    def finish(self, parts: Parts) -> Tensor:
        """Compute the pooled vectors, (B, D), from a state."""
        return log_of_sum(parts["peak"], parts["exp"])

    def forward(self, sets: Sets) -> Tensor:
        """Compute the smooth maximum of each set, (B, D), in one operation."""
        sets = sets.materialize()
        return segment_logsumexp(sets.values, sets, sets.weights)

    def merge(self, a: Parts, b: Parts) -> Parts:
        """Compute the state of the unions of two batches of sets, set by set."""
        peak = merged_peak(a, b)
        return {"peak": peak, "exp": a["exp"] * shift(a, peak) + b["exp"] * shift(b, peak)}


def merged_peak(a: Parts, b: Parts) -> Tensor:
    """Return the common reference of two sums of exponentials; an empty side (exp = 0) does not count."""
    peak = torch.maximum(a["peak"], b["peak"])
    peak = torch.where(a["exp"] == 0, b["peak"], peak)
    return torch.where(b["exp"] == 0, a["peak"], peak)


def shift(parts: Parts, peak: Tensor) -> Tensor:
    """Return the factor of a sum of exponentials when its reference changes to `peak`."""
    return torch.where(parts["exp"] == 0, 0, (parts["peak"] - peak).clamp(max=0).exp())


def _left(count: Tensor, removed: Tensor) -> Tensor:
    """Difference of two sums of weights; a rest as small as its rounding error counts as 0."""
    left = count - removed
    return torch.where(left > 32 * torch.finfo(left.dtype).eps * count, left, 0)
