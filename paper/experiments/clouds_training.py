"""How networks for point clouds are trained, and how they are scored (section 4.1.3, appendix H)."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsets.sets import Sets
from deepsets.train import Batch

from ..baselines.networks import neighbours
from ..datasets.clouds import Clouds
from ..experiment import Trial
from ..training import train_by_steps


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
    """A random number of points, 100 or more, the largest ones late: for a network that sees the neighbours of each."""
    top = most // 6 if done < 0.6 else most * 2 // 5 if done < 0.9 else most
    return min(most, round(100 * (max(top, 100) / 100) ** float(torch.rand(()))))


DRAWS = 3  # of the points of each test cloud, over which the accuracy is averaged
BATCH = 64


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    build(classes) gives the network. batch: clouds in a step. smoothing: of labels. moves(batch, done): what happens
    to the clouds at every step. average, optimizer, bfloat16: see `train_by_steps`. sizes(done, points): the points of
    a cloud in training. near: the network sees so many neighbours of each point, of all those of the cloud. most: a
    test cloud with more points is asked about in parts, whose answers are averaged. also: other numbers of points that
    the same weights are scored with. votes: of stretched copies of a test cloud, whose mean is scored too. Functions
    for moves and sizes get the share of the training that is over, from 0 to 1.
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
    near: int = 0
    most: int = 5000
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
        seen = recipe.sizes(done, points)
        chosen = torch.randperm(x.shape[1])[: points if recipe.near else seen]
        return Batch(as_sets(recipe.moves(x[rows[:, None], chosen], done), recipe.near, seen), y[rows])

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
def accuracy(model: nn.Module, recipe: Recipe, data: Clouds, points: int, seed: int, votes: int = 0) -> float:
    """The share of all test clouds that get their class, a mean over some draws of their points.

    votes: so many draws of a cloud, each stretched in another way, give one answer, their mean.
    """
    x, y = torch.from_numpy(data.x_test), torch.from_numpy(data.y_test)
    if points > x.shape[1]:
        raise ValueError(f"wanted {points} points of each cloud, but the test clouds have {x.shape[1]}.")
    model.eval()
    size = max(1, BATCH * 500 // points)

    def answer(batch: Tensor) -> Tensor:
        parts = (stretched(batch) if votes else batch).chunk(math.ceil(points / recipe.most), dim=1)
        return torch.stack([model(as_sets(part, recipe.near)).softmax(1) for part in parts]).mean(0)

    answers = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1_000_000 + seed)
        for _ in range(votes or (DRAWS if points < x.shape[1] else 1)):
            chosen = torch.randperm(x.shape[1])[:points]
            answers.append(torch.cat([answer(x[rows[:, None], chosen]) for rows in torch.arange(len(x)).split(size)]))
    classes = torch.stack(answers).mean(0)[None].argmax(2) if votes else torch.stack(answers).argmax(2)
    return float((classes == y).double().mean())


def as_sets(batch: Tensor, near: int = 0, seen: int | None = None) -> Sets:
    """(B, n, 3) -> B sets of n points; with `near`, of the first `seen` points, each with its neighbours (1 + near, 3).

    >>> as_sets(torch.randn(2, 9, 3), near=4, seen=5)
    Sets(2 sets, 10 elements of shape (5, 3), sizes 5..5, float32)
    """
    count = batch.shape[1]
    sets = Sets(batch.reshape(-1, 3), torch.arange(len(batch) + 1) * count)
    if not near:
        return sets
    rows = torch.arange(sets.total).view(-1, count)[:, :seen]
    values = sets.values[neighbours(sets, near, rows.flatten())]
    return Sets(values, torch.arange(len(batch) + 1) * rows.shape[1])
