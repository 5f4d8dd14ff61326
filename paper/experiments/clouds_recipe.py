"""How networks for clouds are trained, and scored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsets.sets import Sets
from deepsets.train import Batch

from ..datasets.modelnet40 import Clouds
from ..experiment import Trial
from ..steps import train_by_steps
from .clouds_augment import still, stretched
from .clouds_sizes import subset, whole

DRAWS = 3  # of the points of each test cloud, over which the accuracy is averaged
BATCH = 64


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    build(classes) gives the network. batch: clouds in a step. smoothing: of labels. moves(batch, done): what happens
    to the clouds at every step. average, optimizer, bfloat16: see `train_by_steps`. sizes(done, points): the points of
    a cloud in training. also: other numbers of points that the same weights are scored with. votes: of stretched
    copies of a test cloud, whose mean is scored too.
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
    """Trains the model in place, on so many points of the training clouds."""
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
        seed=trial.seed, checkpoint_dir=trial.folder, progress=trial.progress,
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
        for _ in range(votes or DRAWS):
            chosen = torch.randperm(x.shape[1])[:points]
            each = (x[rows[:, None], chosen] for rows in torch.arange(len(x)).split(BATCH))
            scores = [model(as_sets(stretched(batch) if votes else batch)) for batch in each]
            answers.append(torch.cat(scores).softmax(1))
    classes = torch.stack(answers).mean(0)[None].argmax(2) if votes else torch.stack(answers).argmax(2)
    return float((classes == y).double().mean())


def as_sets(batch: Tensor) -> Sets:
    """(B, n, 3) -> B sets of n points."""
    return Sets(batch.reshape(-1, 3), torch.arange(len(batch) + 1) * batch.shape[1])
