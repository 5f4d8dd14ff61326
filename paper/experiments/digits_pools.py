"""Training on sets that share their images: a pool is deformed and encoded once, and many sets are drawn from it."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from deepsets.train import Batch
from deepsets.train.loop import Loss

from ..datasets.digits import deform, draw, sums
from ..steps import train_by_steps


def train_on_pools(
    model: nn.Module,
    loss: Loss,
    images: Tensor,
    digits: Tensor,
    *,
    epochs: int,
    rate: float,
    weight_decay: float = 0.0,
    pool: int = 128,
    sets: int = 256,
    amount: float = 1.0,
    average: float = 0.998,
    seed: int,
    folder: Path,
    progress: bool = False,
) -> None:
    """Trains a model of sets of images, (U, H, W) bytes, to tell sums of their digits, (U,), in place.

    At every step the next `pool` images are deformed (by `amount`), and so many `sets` of 1 to 10 of them are drawn.
    A set is a `Sets` with an `index` into the pool, so phi runs once for each image, not once for each of the five
    places or more in which it stands: a step costs a tenth of what it would cost with an image for every place.

    The loss sees the sets and their sums, never a digit. The rest is `train_by_steps`.
    """

    def make(rows: Tensor, done: float) -> Batch:
        batch = draw(deform(images[rows].float() / 255, amount), sets, (1, 10))
        return Batch(batch, sums(batch, digits[rows]))

    train_by_steps(
        model, loss, make, len(images),
        epochs=epochs, rate=rate, weight_decay=weight_decay, pool=pool, average=average,
        seed=seed, folder=folder, progress=progress, settings={"sets": sets, "amount": amount},
    )  # fmt: skip
