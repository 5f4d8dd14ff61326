"""Set networks for clouds of points: the paper's (appendix H), and what one would build today."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from deepsets.nn import DeepSet, Equivariant, EquivariantBlock, SetNorm, SetSequential, Standardize, pooling
from deepsets.sets import Sets


def published(classes: int, width: int = 256) -> DeepSet:
    """Three equivariant layers (x − max x) Γ + β, tanh, maximum, a dense layer, dropout after the pooling."""
    layers = [Equivariant(n, width, pool="max", form="factored", activation="tanh") for n in (3, width, width)]
    return DeepSet(SetSequential(Standardize(), *layers), _rho(width, classes), pool="max")


def pooling_only(classes: int, width: int = 256) -> DeepSet:
    """The same with maps of single points."""
    layers: list[nn.Module] = []
    for before in (3, width, width):
        layers += [nn.Linear(before, width), nn.Tanh()]
    return DeepSet(SetSequential(Standardize(), *layers), _rho(width, classes), pool="max")


def _rho(width: int, classes: int) -> nn.Sequential:
    drop = nn.Dropout
    return nn.Sequential(drop(0.5), nn.Linear(width, width), nn.Tanh(), drop(0.5), nn.Linear(width, classes))


class Octaves(nn.Module):
    r"""Coordinates, and their waves at some octaves:  $x, \sin(2^k π x), \cos(2^k π x)$  for k = 0, 1, …

    >>> Octaves(4)(torch.randn(7, 3)).shape
    torch.Size([7, 27])
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        """(N, D) -> (N, D (1 + 2 number))."""
        angles = torch.cat([x * (torch.pi * 2**k) for k in range(self.number)], dim=1)
        return torch.cat([x, angles.sin(), angles.cos()], dim=1)


class Outer(nn.Module):
    r"""The mean product of two maps of the members:  $\frac{1}{n} Σ_i \mathrm{relu}(x_i A)^⊤ (x_i B)$, a × b numbers.

    >>> Outer(16, 4)(Sets.from_list([torch.randn(9, 16), torch.randn(2, 16)])).shape
    torch.Size([2, 16])

    How two traits of the points go together, which maximum and mean of single channels cannot tell.
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(features, width), nn.Linear(features, width)

    def forward(self, sets: Sets) -> Tensor:
        """Sets with values (N, features) -> (B, width²)."""
        sizes = sets.sizes.tolist()
        pairs = zip(self.one(sets.values).relu().split(sizes), self.other(sets.values).split(sizes), strict=True)
        products = torch.stack([one.T @ other for one, other in pairs])
        return products.flatten(1) / sets.sizes.clamp(min=1)[:, None]


class SetNet(nn.Module):
    """Octaves, residual blocks with set norm that see maximum and mean; then what all points have, and pairs of it.

    >>> SetNet(40)(Sets.from_list([torch.randn(9, 3), torch.randn(2, 3)])).shape
    torch.Size([2, 40])
    """

    def __init__(self, classes: int, width: int = 128, blocks: int = 3) -> None:
        super().__init__()
        self.inner = SetSequential(
            Octaves(4), nn.Linear(27, width), *(EquivariantBlock(width) for _ in range(blocks)), SetNorm(width)
        )
        self.wide = nn.Sequential(nn.Linear(width, 3 * width), nn.ReLU(inplace=True))
        self.pool, self.outer = pooling(["max", "mean"]), Outer(width, 32)
        last = 6 * width + 32**2
        self.rho = nn.Sequential(nn.BatchNorm1d(last), nn.Linear(last, 256), nn.BatchNorm1d(256), nn.ReLU())
        self.rho.extend([nn.Dropout(0.4), nn.Linear(256, classes)])

    def forward(self, sets: Sets) -> Tensor:
        """Sets with values (N, 3) -> (B, classes)."""
        sets = self.inner(sets)
        return self.rho(torch.cat([self.pool(sets.map(self.wide)).float(), self.outer(sets)], dim=1))
