"""Scaling of features and targets, learned from the training data in float64."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Scale(nn.Module):
    """Standardiser with two views of each feature: deviations from the mean, and the normal score of the rank.

    The first view keeps distances, the second is robust to heavy tails and outliers. Both are clipped at ±3, so that
    no single value dominates a network. Statistics are float64, so that a large offset (a Unix time) loses nothing.

    Parameters
    ----------
    features : int
        Number of columns.

    Examples
    --------
    >>> scale = Scale(1)
    >>> scale.learn(torch.tensor([[0.0], [1.0], [2.0], [1000.0]]))
    >>> scale(torch.tensor([[1.0], [1000.0], [float("nan")]])).round(decimals=2)
    tensor([[-0.5800, -0.4300],
            [ 1.7300,  3.0000],
            [ 0.0000,  0.0000]])

    """

    mean: Tensor
    inverse: Tensor
    knots: Tensor

    LIMIT = 3.0
    KNOTS = 100

    def __init__(self, features: int) -> None:
        super().__init__()
        self.out_features = 2 * features
        self.register_buffer("mean", torch.zeros(features, dtype=torch.float64))
        self.register_buffer("inverse", torch.ones(features, dtype=torch.float64))
        self.register_buffer("knots", torch.zeros(features, self.KNOTS, dtype=torch.float64))

    def learn(self, x: Tensor) -> None:
        """Take mean, deviation and 100 quantiles of each column of (N, D); a constant column is only centred."""
        x = x.double()
        there = ~x.isnan()
        count = there.sum(0).clamp(min=1)
        self.mean.copy_(torch.where(there, x, 0).sum(0) / count)
        deviation = (torch.where(there, x - self.mean, 0).square().sum(0) / count).sqrt()
        self.inverse.copy_(torch.where(deviation > 1e-12 * self.mean.abs(), 1 / deviation, 1))
        steps = torch.linspace(0, 1, self.KNOTS, dtype=torch.float64)
        rows = torch.arange(0, len(x), max(1, len(x) // 50_000))  # quantiles of at least 50,000 rows, evenly spaced
        ordered = x[rows].sort(dim=0).values  # NaN last
        place = steps[:, None] * (there[rows].sum(0) - 1).clamp(min=0)
        low = place.floor().long()
        high = torch.minimum(low + 1, (there[rows].sum(0) - 1).clamp(min=0))
        if len(rows):
            knots = torch.lerp(ordered.gather(0, low), ordered.gather(0, high), place - low)
            self.knots.copy_(torch.nan_to_num(knots.T, nan=0.0))

    def deviations(self, x: Tensor) -> Tensor:
        """Deviations from the mean, not clipped; NaN stays NaN."""
        return (x.double() - self.mean) * self.inverse

    def forward(self, x: Tensor) -> Tensor:
        """(N, D) to (N, 2 D), as float32; a missing value becomes 0 in both views."""
        x = x.double()
        views = torch.cat([self.deviations(x), self._normal_scores(x)], dim=-1)
        return torch.where(views.isnan(), 0, views).clamp(-self.LIMIT, self.LIMIT).float()

    def _normal_scores(self, x: Tensor) -> Tensor:
        """Normal score of the rank of each value among the knots; a value equal to several knots gets their middle."""
        low, high = self._place(x, right=True) - 1, self._place(x, right=False)
        at_low = self._knot(low.clamp(min=0))
        at_high = self._knot(high.clamp(max=self.KNOTS - 1))
        between = (x - at_low) / torch.where(at_high > at_low, at_high - at_low, 1)
        place = torch.where(high > low, low + between.clamp(0, 1), (low + high) / 2)
        share = (place / (self.KNOTS - 1)).clamp(1e-4, 1 - 1e-4)
        return torch.where(x.isnan(), 0, _normal_quantile(share))

    def _place(self, x: Tensor, *, right: bool) -> Tensor:
        if torch.compiler.is_exporting():  # searchsorted has no ONNX form; counting the smaller knots has
            beyond = x[..., None] >= self.knots if right else x[..., None] > self.knots
            return beyond.sum(-1)
        return torch.searchsorted(self.knots, x.T.contiguous(), right=right).T

    def _knot(self, places: Tensor) -> Tensor:
        return self.knots.T.gather(0, places)


def _normal_quantile(share: Tensor) -> Tensor:
    """Inverse of the normal distribution function, for shares between 1e-4 and 1 - 1e-4."""
    if not torch.compiler.is_exporting():
        return torch.special.ndtri(share)
    # ndtri has no ONNX form. Acklam's rational functions: relative error below 1.2e-9, in float64 as they cancel.
    centred = share.double() - 0.5
    tail = (-2 * (0.5 - centred.abs()).log()).sqrt()
    near, far = centred * _ratio(centred.square(), _NEAR), -centred.sign() * _ratio(tail, _FAR)
    return torch.where(centred.abs() <= 0.47575, near, far).to(share.dtype)


def _ratio(x: Tensor, coefficients: tuple[tuple[float, ...], tuple[float, ...]]) -> Tensor:
    above, below = torch.zeros_like(x), torch.zeros_like(x)
    for a in coefficients[0]:
        above = above * x + a
    for b in coefficients[1]:
        below = below * x + b
    return above / below


_NEAR = (
    (
        *(-39.69683028665376, 220.9460984245205, -275.9285104469687),
        *(138.357751867269, -30.66479806614716, 2.506628277459239),
    ),
    (-54.47609879822406, 161.5858368580409, -155.6989798598866, 66.80131188771972, -13.28068155288572, 1.0),
)
_FAR = (
    (
        *(-0.007784894002430293, -0.3223964580411365, -2.400758277161838),
        *(-2.549732539343734, 4.374664141464968, 2.938163982698783),
    ),
    (0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416, 1.0),
)


class Unscale(nn.Module):
    """From deviations back to the units of the target, (n, outputs) to (n, outputs).

    Parameters
    ----------
    outputs : int
        Number of targets.

    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(outputs, dtype=torch.float64))
        self.register_buffer("deviation", torch.ones(outputs, dtype=torch.float64))

    def learn(self, y: Tensor) -> None:
        """Take mean and deviation of the columns of (n, outputs)."""
        self.mean.copy_(y.double().mean(0))
        self.deviation.copy_(y.double().std(0, correction=0))

    def forward(self, y: Tensor) -> Tensor:
        """Units of the target."""
        return y.double() * self.deviation + self.mean

    def scaled(self, y: Tensor) -> Tensor:
        """Inverse: targets as deviations from their mean, float32."""
        return ((y.double() - self.mean) / self.deviation).float()
