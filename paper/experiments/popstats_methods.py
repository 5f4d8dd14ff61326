"""Methods for population statistics: the network of the paper, and a regression on second moments."""

from collections.abc import Callable

import numpy as np
import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV
from torch import Tensor
from torch import nn as tnn

from deepsets import nn
from deepsets.sets import Sets


class Standard(tnn.Module):
    """Standardise columns by mean and deviation of the first batch (B, D)."""

    mean: Tensor
    scale: Tensor

    def __init__(self, first: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", first.mean(0))
        self.register_buffer("scale", 1 / (first.std(0) + 1e-8))

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, D)."""
        return (x - self.mean) * self.scale


def whitening(sets: Sets) -> Callable[[Sets], Sets]:
    """Return what makes members white: mean 0 and the unit matrix as covariance, over all training sets."""
    spectrum, axes = torch.linalg.eigh(torch.cov(sets.values.T.double()))
    mean, root = sets.values.mean(0), ((axes * spectrum.rsqrt()) @ axes.T).float()
    return lambda given: given.map(lambda x: (x - mean) @ root)


class Network(tnn.Module):
    """Three fully connected layers before and after the pooling, for white members.

    Means over 400 members hardly differ from set to set. So the pooled vectors are standardised by what they are before
    training: rho sees the differences from the first step.
    """

    def __init__(self, sets: Sets, width: int = 128, pool: str = "mean") -> None:
        super().__init__()
        phi, rho = nn.mlp(sets.width, width, width, width), nn.mlp(width, width, width, 1)
        with torch.no_grad():
            first = nn.pooling(pool)(sets[:128].map(phi))
        self.model = nn.DeepSet(phi, tnn.Sequential(Standard(first), rho), pool=pool)

    def forward(self, sets: Sets) -> Tensor:
        """White sets to (B,), in units of the deviation of the targets."""
        return self.model(sets)[:, 0]


_GRID = [
    {"kernel": ["linear"], "alpha": np.logspace(-6, 2, 9).tolist()},
    {"kernel": ["rbf"], "gamma": [1e-3, 1e-2, 1e-1, 0.5], "alpha": [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]},
]


def log_moments(sets: Sets) -> list[Tensor]:
    r"""Of each set: the mean of  $\log σ_i^2$, that of  $\log λ_i$, all of these,  $\log Σ$  above its diagonal, and λ.

    >>> source = torch.Generator().manual_seed(0)
    >>> sets = Sets.from_list([torch.randn(50, 3, generator=source), torch.randn(80, 3, generator=source)])
    >>> [tuple(group.shape) for group in log_moments(sets)]
    [(2, 1), (2, 1), (2, 3), (2, 3), (2, 6), (2, 3)]

    Σ is the sample covariance, σ² its diagonal, λ its eigenvalues. Entropies and informations of Gaussians are linear
    in the logarithms. Covariances come from means of x and of x xᵀ, so the state of a set merges. Float64.
    """
    mean = nn.pooling("mean")
    above = torch.triu_indices(sets.width, sets.width).unbind()
    found = []
    for rows in torch.arange(len(sets)).split(64):  # the squares of all members at once would be large
        some = sets[rows].map(lambda x: x.double())
        first, second = mean(some), mean(some.map(lambda x: (x[:, :, None] * x[:, None]).flatten(1)))
        covariance = second.view(len(some), sets.width, sets.width) - first[:, :, None] * first[:, None]
        covariance = covariance * (1 + 1 / (some.sizes.double() - 1))[:, None, None]
        values, axes = torch.linalg.eigh(covariance)
        values = values.clamp_min(1e-12)
        logs, variances = values.log(), covariance.diagonal(dim1=1, dim2=2).clamp_min(1e-12).log()
        entries = ((axes * logs[:, None]) @ axes.mT)[:, *above]
        found.append((variances.mean(1, keepdim=True), logs.mean(1, keepdim=True), variances, logs, entries, values))
    return [torch.cat(groups) for groups in zip(*found, strict=True)]


def learn_from_moments(sets: Sets, y: Tensor, asked: Sets, search: int = 1024) -> tuple[Tensor, str]:
    """Return what is found for the sets `asked`, (B,), and the kernel that cross-validation chose.

    rho is a ridge regression on `log_moments`, linear or with an RBF kernel; kernel, width and penalty are chosen by
    five-fold cross-validation on the first `search` sets. Each group of moments counts as much as another, however many
    numbers it has: a statistic that follows from few of them is then found from few sets.
    """
    known, new = [], []
    for group, other in zip(log_moments(sets), log_moments(asked), strict=True):
        scale = (group.std(0) + 1e-12) * group.shape[1] ** 0.5
        known.append((group - group.mean(0)) / scale)
        new.append((other - group.mean(0)) / scale)
    x, centre = torch.cat(known, dim=1).numpy(), float(y.mean())
    wanted = y.double().numpy() - centre
    choice = GridSearchCV(KernelRidge(), _GRID, cv=5, scoring="neg_mean_squared_error", refit=False)
    best = choice.fit(x[:search], wanted[:search]).best_params_
    found = KernelRidge(**best).fit(x, wanted).predict(torch.cat(new, dim=1).numpy())
    return torch.from_numpy(found).float() + centre, str(best["kernel"])
