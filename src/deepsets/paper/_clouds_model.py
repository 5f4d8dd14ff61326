"""Set networks for clouds of points: the paper's (appendix H), and what one would build today."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..nn import Block, DeepSet, Equivariant, SetNorm, Stack, Standardize


def published(classes: int, width: int = 256) -> DeepSet:
    """Three equivariant layers (x − max x) Γ + β, tanh, maximum, a dense layer, dropout after the pooling."""
    layers = [Equivariant(n, width, pool="max", form="factored", activation="tanh") for n in (3, width, width)]
    return DeepSet(Stack(Standardize(), *layers), _rho(width, classes), pool="max")


def pooling_only(classes: int, width: int = 256) -> DeepSet:
    """The same with maps of single points."""
    layers: list[nn.Module] = []
    for before in (3, width, width):
        layers += [nn.Linear(before, width), nn.Tanh()]
    return DeepSet(Stack(Standardize(), *layers), _rho(width, classes), pool="max")


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


def ours(classes: int, width: int = 128, blocks: int = 3) -> DeepSet:
    """Octaves, residual blocks with set norm that see maximum and mean, a wide layer, maximum and mean of it."""
    wide = 4 * width
    inner: list[nn.Module] = [Octaves(4), nn.Linear(27, width), *(Block(width) for _ in range(blocks))]
    phi = Stack(*inner, SetNorm(width), nn.Linear(width, wide), nn.ReLU(inplace=True))
    rho = nn.Sequential(nn.BatchNorm1d(2 * wide), nn.Linear(2 * wide, 256), nn.BatchNorm1d(256), nn.ReLU())
    return DeepSet(phi, nn.Sequential(*rho, nn.Dropout(0.4), nn.Linear(256, classes)), pool=["max", "mean"])
