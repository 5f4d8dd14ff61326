"""Features and targets to comparable units, as learnt from the training data."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Scale(nn.Module):
    """Each feature in two views, (N, D) -> (N, 2 D): in units of its deviation, and as a normal score of its rank.

    >>> scale = Scale(1)
    >>> scale.learn(torch.tensor([[0.0], [1.0], [2.0], [1000.0]]))
    >>> scale(torch.tensor([[1.0], [1000.0], [float("nan")]])).round(decimals=2)
    tensor([[-0.5800, -0.4300],
            [ 1.7300,  3.0000],
            [ 0.0000,  0.0000]])

    The first view keeps distances, the second does not mind heavy tails and outliers. Both are cut at ±3, so that no
    single value rules a network. Missing values become 0, the middle; with `missing` a third view marks them by 1.
    """

    mean: Tensor
    inverse: Tensor
    knots: Tensor

    LIMIT = 3.0
    KNOTS = 100

    def __init__(self, features: int, *, missing: bool = False) -> None:
        super().__init__()
        self.missing, self.out_features = missing, (3 if missing else 2) * features
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("inverse", torch.ones(features))
        self.register_buffer("knots", torch.zeros(features, self.KNOTS))

    def learn(self, x: Tensor) -> None:
        """Takes mean, deviation and 100 quantiles of each column of (N, D); a constant column is only centred."""
        columns = [column[~column.isnan()].double() for column in x.T]
        columns = [column if len(column) else column.new_zeros(1) for column in columns]
        mean = torch.stack([column.mean() for column in columns])
        deviation = torch.stack([column.std(correction=0) for column in columns])
        steps = torch.linspace(0, 1, self.KNOTS, dtype=torch.float64)
        self.mean.copy_(mean)
        self.inverse.copy_(torch.where(deviation > 1e-8 * mean.abs(), 1 / deviation, 1))
        self.knots.copy_(torch.stack([_quantiles(column, steps) for column in columns]))

    def forward(self, x: Tensor) -> Tensor:
        plain = (x - self.mean) * self.inverse
        views = torch.cat([plain, self._normal_scores(x), *([x.isnan().to(x.dtype)] if self.missing else [])], dim=-1)
        return torch.nan_to_num(views, nan=0.0).clamp(-self.LIMIT, self.LIMIT)

    def _normal_scores(self, x: Tensor) -> Tensor:
        """The place of each value among the knots (where it fills several, in their middle), as a normal score."""
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
    """The inverse of the normal distribution, for shares between 1e-4 and 1 - 1e-4."""
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
        -39.69683028665376,
        220.9460984245205,
        -275.9285104469687,
        138.3577518672690,
        -30.66479806614716,
        2.506628277459239,
    ),
    (-54.47609879822406, 161.5858368580409, -155.6989798598866, 66.80131188771972, -13.28068155288572, 1.0),
)
_FAR = (
    (
        -0.007784894002430293,
        -0.3223964580411365,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ),
    (0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416, 1.0),
)


def _quantiles(column: Tensor, steps: Tensor) -> Tensor:
    """Quantiles by linear interpolation (torch.quantile refuses columns over 16 million)."""
    ordered = column.sort().values
    place = steps * (len(ordered) - 1)
    low = place.floor().long()
    return torch.lerp(ordered[low], ordered[(low + 1).clamp(max=len(ordered) - 1)], place - low)


class Unscale(nn.Module):
    """From variance 1 back to the units of the target, (n, outputs) -> (n, outputs)."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(outputs))
        self.register_buffer("deviation", torch.ones(outputs))

    def learn(self, y: Tensor) -> None:
        """Takes mean and deviation of the columns of (n, outputs)."""
        self.mean.copy_(y.double().mean(0))
        self.deviation.copy_(y.double().std(0, correction=0))

    def forward(self, y: Tensor) -> Tensor:
        return y * self.deviation + self.mean

    def scaled(self, y: Tensor) -> Tensor:
        """The reverse: targets in units of their deviation."""
        return (y - self.mean) / self.deviation
