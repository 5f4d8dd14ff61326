"""Networks for point clouds, how they are trained and how they are scored (section 4.1.3, appendix H)."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsets.nn import DeepSet, Equivariant, EquivariantBlock, SetDropout, SetNorm, SetSequential, Standardize, pooling
from deepsets.sets import Sets
from deepsets.train import Batch

from ..datasets.clouds import Clouds
from ..experiment import Trial
from ..training import train_by_steps


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


def still(batch: Tensor, done: float) -> Tensor:
    """Leave clouds as they are."""
    return batch


def fading(batch: Tensor, done: float) -> Tensor:
    """Stretch clouds less and less, as the training goes from 0 to 1: at the end as the votes are."""
    return stretched(batch, 1 - 0.6 * done)


def stretched(batch: Tensor, strength: float = 0.4) -> Tensor:
    """Scale every axis of a cloud by 2/3 to 3/2 and shift it by up to 0.2, at strength 1; (B, n, 3)."""

    def up_to(most: float) -> Tensor:
        return (torch.rand(len(batch), 1, 3) * 2 - 1) * (most * strength)

    return batch * up_to(math.log(1.5)).exp() + up_to(0.2)


def subset(done: float, most: int) -> int:
    """Return how many points a cloud has in training: few at first, more until 95 %, then all; at least 100."""
    return min(most, max(100, most // 8 if done < 0.6 else most // 4 if done < 0.95 else most))


def up_to_1000(done: float, most: int) -> int:
    """As for 1000 points, for a wide network that is asked about 5,000: more hardly change its accuracy."""
    return subset(done, min(most, 1000))


def whole(done: float, most: int) -> int:
    """All of them, always."""
    return most


def nearly_whole(done: float, most: int) -> int:
    """For graphs, whose neighbours in a thinned cloud are other ones: a quarter of the points until 80 %, then all."""
    return most // 4 if done < 0.8 else most


def any_size(done: float, most: int) -> int:
    """For a network that is asked about clouds of any size: 100 points or more, by chance, the largest ones late."""
    top = most // 6 if done < 0.6 else most * 2 // 5 if done < 0.9 else most
    return min(most, round(100 * (max(top, 100) / 100) ** float(torch.rand(()))))


def up_to_2500(done: float, most: int) -> int:
    """As for 1000 points, and up to 2,500 in the last steps, for a network that is asked about 5,000 too."""
    return any_size(done, min(most, 1000 if done < 0.96 else 2500))


DRAWS = 3  # of the points of each test cloud, over which the accuracy is averaged
BATCH = 64


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    build(classes) gives the network. batch: clouds in a step. smoothing: of labels. moves(batch, done): what happens
    to the clouds at every step. average, optimizer, bfloat16: see `train_by_steps`. sizes(done, points): the points of
    a cloud in training. also: other numbers of points that the same weights are scored with. votes: of stretched
    copies of a test cloud, whose mean is scored too. Functions for moves and sizes get the share of the training that
    is over, from 0 to 1.
    """

    build: Callable[..., nn.Module]
    epochs: int
    rate: float = 1e-3
    batch: int = BATCH
    weight_decay: float = 0.0
    smoothing: float = 0.0
    moves: Callable[[Tensor, float], Tensor] = still
    average: float = 0.0
    optimizer: type[torch.optim.Optimizer] | None = None
    bfloat16: bool = True
    sizes: Callable[[float, int], int] = subset
    also: tuple[int, ...] = ()
    votes: int = 0


def quick(recipe: Recipe) -> Recipe:
    """The same for a small network and a minute."""
    return replace(
        recipe, build=partial(recipe.build, width=48), epochs=16, rate=4e-3, batch=16, average=0.0, bfloat16=False,
        sizes=whole, also=(), votes=0,
    )  # fmt: skip


def train(model: nn.Module, recipe: Recipe, data: Clouds, points: int, trial: Trial) -> None:
    """Train the model in place, on so many points of the training clouds."""
    x, y = torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)

    def make(rows: Tensor, done: float) -> Batch:
        chosen = torch.randperm(x.shape[1])[: recipe.sizes(done, points)]
        return Batch(as_sets(recipe.moves(x[rows[:, None], chosen], done)), y[rows])

    def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, int]:
        assert isinstance(batch.y, Tensor)
        scores = model(batch.sets)
        return F.cross_entropy(scores, batch.y, label_smoothing=recipe.smoothing, reduction="sum"), len(batch.y)

    train_by_steps(
        model, loss, make, len(x),
        epochs=recipe.epochs, pool=recipe.batch, rate=recipe.rate, weight_decay=recipe.weight_decay,
        average=recipe.average, optimizer=recipe.optimizer, bfloat16=recipe.bfloat16,
        seed=trial.seed, folder=trial.folder, progress=trial.progress,
        settings={"points": points, "smoothing": recipe.smoothing, "moves": recipe.moves.__name__}
        | {"sizes": recipe.sizes.__name__, "optimizer": recipe.optimizer.__name__ if recipe.optimizer else "AdamW"},
    )  # fmt: skip


@torch.no_grad()
def accuracy(model: nn.Module, data: Clouds, points: int, seed: int, votes: int = 0) -> float:
    """The share of all test clouds that get their class, a mean over some draws of their points.

    votes: so many draws of a cloud, each stretched in another way, give one answer, their mean.
    """
    x, y = torch.from_numpy(data.x_test), torch.from_numpy(data.y_test)
    if points > x.shape[1]:
        raise ValueError(f"wanted {points} points of each cloud, but the test clouds have {x.shape[1]}.")
    model.eval()
    answers = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1_000_000 + seed)
        for _ in range(votes or (DRAWS if points < x.shape[1] else 1)):
            chosen = torch.randperm(x.shape[1])[:points]
            each = (x[rows[:, None], chosen] for rows in torch.arange(len(x)).split(max(1, BATCH * 500 // points)))
            scores = [model(as_sets(stretched(batch) if votes else batch)) for batch in each]
            answers.append(torch.cat(scores).softmax(1))
    classes = torch.stack(answers).mean(0)[None].argmax(2) if votes else torch.stack(answers).argmax(2)
    return float((classes == y).double().mean())


def as_sets(batch: Tensor) -> Sets:
    """(B, n, 3) -> B sets of n points."""
    return Sets(batch.reshape(-1, 3), torch.arange(len(batch) + 1) * batch.shape[1])
