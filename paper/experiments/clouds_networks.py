"""Networks for point clouds: the paper's (appendix H), one that only pools, and ours."""

from typing import Literal

import torch
from torch import Tensor, nn

from deepsets.nn import DeepSet, Equivariant, EquivariantBlock, SetDropout, SetNorm, SetSequential, Standardize, pooling
from deepsets.sets import Sets


def published(classes: int, width: int = 256, *, pool: str = "max", full: bool = False, drop: float = 0.0) -> DeepSet:
    """Three equivariant layers (x − max x) Γ + β, tanh, maximum, a dense layer, dropout after the pooling.

    Appendix H compares other widths, other layers (`pool`; `full`: x Λ + max x Γ + β), dropout inside them.
    """
    layers: list[nn.Module] = [Standardize()]
    form: Literal["full", "factored"] = "full" if full else "factored"
    for before in (3, width, width):
        layers += [Equivariant(before, width, pool, form=form, activation="tanh"), *[SetDropout(drop)] * (drop > 0)]
    return DeepSet(SetSequential(*layers), _rho(width, classes), pool="max")


def pooling_only(classes: int, width: int = 256) -> DeepSet:
    """The same with maps of single points."""
    layers = [layer for before in (3, width, width) for layer in (nn.Linear(before, width), nn.Tanh())]
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


class Surroundings(nn.Module):
    r"""What lies around a point, from the offsets of its neighbours: sets in sets.

    >>> Surroundings(16)(torch.randn(7, 8, 3)).shape
    torch.Size([7, 16])

    (N, k, 3) offsets d, the nearest first -> (N, width). For the nearer half of the neighbours and for all of them: the
    mean of d, the mean of the products $d_a d_b$, and $\log r$, where $r^2$ is the mean of $|d|^2$. Then the maximum
    and the mean over the neighbours of a small network. All but $\log r$ sees d in units of r.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 32), nn.ReLU())
        self.out = nn.Linear(2 * (3 + 6 + 1) + 2 * 32, width)

    def forward(self, offsets: Tensor) -> Tensor:
        """(N, k, 3) -> (N, width)."""
        squares = offsets.square().sum(2, keepdim=True)
        a, b = torch.triu_indices(3, 3, device=offsets.device)
        same = (a == b).to(offsets.dtype)
        found = []
        for number in ((offsets.shape[1] + 1) // 2, offsets.shape[1]):
            d, size = offsets[:, :number], squares[:, :number].mean(1).clamp_min(1e-8)
            products = (d.mT @ d)[:, a, b] / number / size
            found += [d.mean(1) / size.sqrt(), 3 * products - same, size.log() / 2 + 2]
        each = self.phi(torch.cat([offsets, squares.sqrt()], dim=2) / size.sqrt()[:, None])
        # Not amax, whose gradient takes as long as all else here.
        return self.out(torch.cat([*found, each.max(1).values, each.mean(1)], dim=1))


class SetNet(nn.Module):
    """Waves and surroundings of points, residual blocks with set norm, then what all points have, and pairs of it.

    >>> SetNet(40)(Sets.from_list([torch.randn(9, 5, 3), torch.randn(2, 5, 3)])).shape
    torch.Size([2, 40])

    A member is a point and its neighbours, the nearest first: (1 + k, 3). Blocks see the maximum and the mean over the
    set.
    """

    def __init__(self, classes: int, width: int = 128, blocks: int = 3) -> None:
        super().__init__()
        self.waves = nn.Sequential(Octaves(4), nn.Linear(27, width))
        self.surroundings = Surroundings(width)
        self.inner = SetSequential(*(EquivariantBlock(width) for _ in range(blocks)), SetNorm(width))
        self.wide = nn.Sequential(nn.Linear(width, 3 * width), nn.ReLU(inplace=True))
        self.pool, self.outer = pooling(["max", "mean"]), Outer(width, 32)
        last = 6 * width + 32**2
        self.rho = nn.Sequential(nn.BatchNorm1d(last), nn.Linear(last, 256), nn.BatchNorm1d(256), nn.ReLU())
        self.rho.extend([nn.Dropout(0.4), nn.Linear(256, classes)])

    def forward(self, sets: Sets) -> Tensor:
        """Sets with values (N, 1 + k, 3) -> (B, classes)."""
        point, near = sets.values[:, 0], sets.values[:, 1:]
        sets = self.inner(sets.with_values(self.waves(point) + self.surroundings(near - point[:, None])))
        return self.rho(torch.cat([self.pool(sets.map(self.wide)).float(), self.outer(sets)], dim=1))
