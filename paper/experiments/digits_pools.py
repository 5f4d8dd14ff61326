"""Training on sets that share their images: a pool is deformed and encoded once, and many sets are drawn from it."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from deepsets.train import Batch, Loss

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
    """Train a model of sets of images to predict the sums of their digits, in place.

    At every step the next `pool` images are deformed, and sets of 1 to 10 of them are drawn. A set is a `Sets` with
    `element_ids` into the pool, so phi runs once per image instead of once for each of the five or more sets that
    contain it: a step costs a tenth of what it would cost with one image per member.

    Parameters
    ----------
    model, loss
        The model, and its loss, which sees sets and sums, never a digit.
    images, digits : Tensor
        (U, H, W) bytes, and (U,) their digits.
    pool, sets : int
        Images and sets per step.
    amount : float
        Strength of the deformation.
    epochs, rate, weight_decay, average, seed, folder, progress
        See `train_by_steps`.
    """

    def make(rows: Tensor, done: float) -> Batch:
        batch = draw(deform(images[rows].float() / 255, amount), sets, (1, 10))
        return Batch(batch, sums(batch, digits[rows]))

    train_by_steps(
        model, loss, make, len(images),
        epochs=epochs, rate=rate, weight_decay=weight_decay, pool=pool, average=average,
        seed=seed, folder=folder, progress=progress, settings={"sets": sets, "amount": amount},
    )  # fmt: skip
