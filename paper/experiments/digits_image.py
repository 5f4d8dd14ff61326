"""Sum of digits, given as images: trained on at most 10 with the sums alone, asked about up to 100 (section 4.1.2)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from deepsets.nn import DeepSet, mlp
from deepsets.sets import Sets
from deepsets.train import Batch, Loss

from ..baselines.networks import Recurrent
from ..datasets.digits import deform, draw, exact_sums, mnist, small_images, sums
from ..experiment import Experiment, Measure, Outcome, Trial
from ..report.scoreboard import NOT_TESTED, Claim, Headline, Scores, Verdict, beats
from ..training import MuonAdamW, train_by_steps
from .digits_networks import Reader, Readers, sum_model
from .digits_text import absolute_error, figure

SIZES = (1, *range(5, 51, 5), 100)
READERS = 3  # networks whose answers phi averages, in the full form of "Ours"


def ours(trial: Trial, part: str) -> Outcome:
    """Sum of log-characteristic functions of digits that convolutional networks read, decoded to the likeliest sum.

    Trained by the likelihood of the sums. At the end phi averages over its networks, and over the image shifted by
    one pixel.
    """
    chosen = trial.choose(epochs=7 if trial.full else 30, rate=2e-3, weight_decay=0.05, amount=_amount(trial.full))
    images, digits = _images(trial.full, "train")
    side = images.shape[-1]
    readers = _readers(side)
    for number in range(len(readers)):
        seed = 1000 * trial.seed + number
        each = replace(trial, seed=seed, folder=trial.folder / f"reader-{number}")
        model = each.build(lambda: sum_model(Reader(side), most=90))
        _train(model, _surprise, images, digits, each, chosen, seed)
        readers[number] = model.phi[0]  # type: ignore[index]
    trial.keep(readers.eval())

    def answer(size: int, sets: Sets) -> Tensor:
        model = sum_model(nn.Identity(), most=9 * size)
        codes = sets.map(model.phi)  # once for each image
        chunks = torch.arange(len(sets)).split(250)
        return torch.cat([model.rho(model.pool(codes[rows])).argmax(1) for rows in chunks])

    return _test(trial, readers, answer)


def _readers(side: int) -> Readers:
    return Readers(28, READERS, shift=1) if side == 28 else Readers(side, 1, shift=0)


def published(build: Callable[[nn.Module], nn.Module], **training: Any) -> Callable[[Trial, str], Outcome]:
    """Return a method with phi of 300, 100 and 30 tanh units, as published; the absolute error is the loss."""

    def run(trial: Trial, part: str) -> Outcome:
        if trial.full:
            chosen = trial.choose(**training, amount=(0.3, 1.8), copies=40, optimizer=MuonAdamW)
        else:
            chosen = trial.choose(epochs=40, rate=3e-3, pool=32, sets=64, amount=_amount(False))
        images, digits = _images(trial.full, "train")
        model = trial.build(lambda: build(_encoder(images.shape[-1])))
        _train(model, absolute_error, images, digits, trial, chosen, 1000 * trial.seed)
        trial.keep(model)
        phi, model.phi = model.phi, nn.Identity()  # it runs once on each test image, in however many sets that is
        model.eval()

        def answer(size: int, sets: Sets) -> Tensor:
            return torch.cat([model(sets[rows])[:, 0] for rows in torch.arange(len(sets)).split(1000)])

        return _test(trial, phi, answer)  # type: ignore[arg-type]

    return run


class Pixels(nn.Module):
    """Smooth images of `side` x `side` pixels of 0 to 1, and standardise them by the mean and deviation of MNIST.

    >>> Pixels(28)(torch.rand(5, 28, 28)).shape
    torch.Size([5, 784])

    Each pixel becomes the mean of those around it, with the weights of a Gaussian whose deviation is one pixel in 28;
    around the image all is 0. Smoothed pixels have a mean of about 0.13 and a deviation of about 0.25.
    """

    weights: Tensor

    def __init__(self, side: int) -> None:
        super().__init__()
        places = torch.arange(side) * (28 / side)
        weights = (-((places[:, None] - places) ** 2) / 2).exp()
        self.register_buffer("weights", weights / weights[side // 2].sum(), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """(N, side, side) -> (N, side²)."""
        return ((self.weights @ images @ self.weights).flatten(1) - 0.13) / 0.25


def _encoder(side: int) -> nn.Sequential:
    return nn.Sequential(Pixels(side), mlp(side**2, 300, 100, 30, activation=nn.Tanh), nn.Tanh())


def _deep_sets(phi: nn.Module) -> DeepSet:
    return DeepSet(phi, nn.Linear(30, 1), pool="sum")


def _recurrent(cell: Literal["lstm", "gru"], phi: nn.Module) -> Recurrent:
    return Recurrent(cell, phi, width=30, state=30, out=1)


_RECURRENT = {"rate": 5e-3, "weight_decay": 0.0, "pool": 512, "sets": 512}


def _train(
    model: nn.Module, loss: Loss, images: Tensor, digits: Tensor, trial: Trial, chosen: SimpleNamespace, seed: int
) -> None:
    """Train a model on sums of the digits (U,) of images (U, H, W), in place.

    At every step the next `pool` images are deformed, or taken from a bank of `copies` deformations of every image that
    is made once, from weak to strong; of these, the strongest are left out one by one, until three tenths are left at
    the end. `sets` sets of 1 to 10 images are drawn. The loss sees the sets and their sums, never a digit.
    """
    settings = {"weight_decay": 0.0, "pool": 128, "sets": 256, "copies": 0, "optimizer": None} | vars(chosen)
    copies = settings["copies"]
    if copies:
        weak, strong = chosen.amount
        bank = _bank(images, torch.linspace(weak, strong, copies).tolist(), seed)

    def make(rows: Tensor, done: float) -> Batch:
        if not copies:
            pool = deform(images[rows].float() / 255, chosen.amount)
        else:
            most = max(1, round(copies * min(1.0, 1.3 - done)))
            pool = bank[torch.randint(most, (len(rows),)), rows].float() / 255
        batch = draw(pool, settings["sets"], (1, 10))
        return Batch(batch, sums(batch, digits[rows]))

    train_by_steps(
        model, loss, make, len(images),
        epochs=chosen.epochs, rate=chosen.rate, weight_decay=settings["weight_decay"], pool=settings["pool"],
        optimizer=settings["optimizer"], average=0.998, seed=seed, folder=trial.folder, progress=trial.progress,
        settings={"sets": settings["sets"], "amount": str(chosen.amount), "copies": copies},
    )  # fmt: skip


def _bank(images: Tensor, amounts: Sequence[float], seed: int) -> Tensor:
    """Return a deformation of every image for each amount, (amounts, U, H, W) bytes."""
    source = torch.Generator().manual_seed(500_000 + seed)
    bank = torch.empty(len(amounts), *images.shape, dtype=torch.uint8)
    for copy, amount in zip(bank, amounts, strict=True):
        for rows in torch.arange(len(images)).split(500):
            copy[rows] = (deform(images[rows].float() / 255, amount, source) * 255).round().byte()
    return bank


def _surprise(model: nn.Module, batch: Batch) -> tuple[Tensor, int]:
    """Return −log p(sum); what rounding leaves of an impossible sum is held at 1e-12."""
    assert isinstance(batch.y, Tensor)
    return -model(batch.sets).gather(1, batch.y[:, None]).clamp_min(1e-12).log().sum(), len(batch.y)


@torch.no_grad()
def _test(trial: Trial, encode: Callable[[Tensor], Tensor], answer: Callable[[int, Sets], Tensor]) -> Outcome:
    """Return the share of exact sums of M images, by two protocols; at M = 1 every image once.

    "M=50": MNIST test images. "deformed M=50": new deformations of the training images, as the authors tested.
    """
    found = []
    for prefix in ("", "deformed ")[: 2 if trial.full else 1]:
        images, digits = _images(trial.full, "train" if prefix else "test")
        if prefix:
            images = _bank(images, [0.4], 900_000 + trial.seed)[0]
        codes = torch.cat([encode(batch.float() / 255) for batch in images.split(500)])
        source = torch.Generator().manual_seed(1_000_000 + trial.seed)
        for size in SIZES:
            if size == 1:
                sets = Sets(codes, torch.arange(len(codes) + 1), torch.arange(len(codes)))
            else:
                sets = draw(codes, 10_000 if trial.full else 1000, (size, size), source)
            value = exact_sums(answer(size, sets), sums(sets, digits))
            found.append(Measure(f"{prefix}M={size}", "accuracy", value))
    return Outcome(found)


def _images(full: bool, part: Literal["train", "test"]) -> tuple[Tensor, Tensor]:
    return (mnist if full else small_images)(part)


def _amount(full: bool) -> float:
    """Return how much the images are deformed: those of 8 x 8 pixels bear little."""
    return 1.0 if full else 0.4


def _explained(scores: Scores) -> Verdict:
    """Check that the accuracy at M = 50 is within a fifth of (1 − p)^50."""
    single, fifty = (scores("Deep Sets", f"M={m}", "accuracy") for m in (1, 50))
    if math.isnan(single):
        return NOT_TESTED
    why = f"p = {100 * (1 - single):.1f} %: (1 − p)^50 = {single**50:.2f}, measured {fifty:.2f}"
    return Verdict(abs(single**50 - fifty) < 0.2 * fifty, why)


EXPERIMENT = Experiment(
    name="digits-image",
    title="Sum of digits, images",
    section="4.1.2",
    methods={
        "Deep Sets": published(_deep_sets, epochs=1600, rate=4e-3, weight_decay=0.2, pool=2048, sets=8192),
        "LSTM": published(partial(_recurrent, "lstm"), epochs=45, **_RECURRENT),
        "GRU": published(partial(_recurrent, "gru"), epochs=48, **_RECURRENT),
        "Ours": ours,
    },
    published={("Deep Sets", "deformed M=50", "accuracy"): 0.78},  # read off the plot in the authors' notebook
    figures={"Accuracy against the number of digits": lambda records: figure(records, 100, ("Deep Sets", "Ours"))},
    networks={
        "Deep Sets": lambda full, part: _deep_sets(_encoder(28 if full else 8)),
        "Ours": lambda full, part: _readers(28 if full else 8),
    },
    headlines=[
        Headline(
            "sum of 50 images, deformed training images (authors' protocol), accuracy", "deformed M=50", "accuracy"
        ),
        Headline("sum of 50 images, MNIST test images, accuracy", "M=50", "accuracy"),
        Headline("sum of 100 images, MNIST test images, accuracy", "M=100", "accuracy"),
    ],
    claims=[
        Claim(
            "trained on at most 10 images, Deep Sets generalises to 50; LSTM and GRU do not",
            beats("Deep Sets", ["LSTM", "GRU"], [(f"M={m}", "accuracy") for m in (20, 50)]),
        ),
        Claim("the accuracy at M = 50 is what the error p of a single digit leaves, (1 − p)^50", _explained),
    ],
)
