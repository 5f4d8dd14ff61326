"""Sum of digits, given as symbols: trained on at most 10, asked about up to 1000 (section 4.1.2)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from deepsets.nn import DeepSet
from deepsets.train import Batch, train

from ..baselines.recurrent import Recurrent
from ..datasets.digits import draw, sums
from ..experiment import Experiment, Outcome, Trial
from ..metrics import exact_sums
from .digits import figure, measures

DIGITS = torch.arange(10)
SIZES = (*range(5, 101, 5), 1000)


def deep_sets() -> nn.Module:
    """As published: an embedding of 100, 30 tanh units, the sum, a linear map (4,061 parameters)."""
    phi = nn.Sequential(nn.Embedding(10, 100), nn.Linear(100, 30), nn.Tanh())
    return DeepSet(phi, nn.Linear(30, 1), pool="sum")


def lstm() -> nn.Module:
    """An embedding of 100, 30 cells, a linear map (16,871 parameters)."""
    return Recurrent("lstm", nn.Embedding(10, 100), width=100, state=30, out=1)


def gru() -> nn.Module:
    """An embedding of 100, 30 cells, a linear map (12,911 parameters)."""
    return Recurrent("gru", nn.Embedding(10, 100), width=100, state=30, out=1)


def _method(build: Callable[[], nn.Module], rate: float) -> Callable[[Trial, str], Outcome]:
    def run(trial: Trial, part: str) -> Outcome:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(trial.seed)
            model = build()
        source = torch.Generator().manual_seed(trial.seed)
        sets = draw(DIGITS, 100_000 if trial.full else 20_000, (1, 10), source)
        train(
            model, _absolute_error, Batch(sets, sums(sets, DIGITS)),
            epochs=10, batch_size=256, learning_rate=rate, weight_decay=0.0,
            seed=trial.seed, checkpoint_dir=trial.folder, progress=trial.progress,
        )  # fmt: skip
        return Outcome(measures(accuracy(model, 5000 if trial.full else 500, trial.seed)))

    return run


def _absolute_error(model: nn.Module, batch: Batch) -> tuple[Tensor, int]:
    assert isinstance(batch.y, Tensor)
    return (model(batch.sets)[:, 0] - batch.y).abs().sum(), len(batch.y)


@torch.no_grad()
def accuracy(model: nn.Module, count: int, seed: int) -> dict[int, float]:
    """The share of exact sums, after rounding, over `count` sets of each size M; in float64."""
    model = model.eval().double()
    source = torch.Generator().manual_seed(1_000_000 + seed)
    found = {}
    for size in SIZES:
        sets = draw(DIGITS, min(count, 1000) if size == 1000 else count, (size, size), source)
        answers = [model(sets[rows])[:, 0] for rows in torch.arange(len(sets)).split(1000)]
        found[size] = exact_sums(torch.cat(answers), sums(sets, DIGITS))
    return found


def _reductions(full: bool) -> list[str]:
    if full:
        return ["5,000 test sets for each M (100,000 up to M = 100), 1,000 at M = 1000"]
    return ["20,000 training sets, not 100,000", "500 test sets for each M", "one seed"]


EXPERIMENT = Experiment(
    name="digits-text",
    title="Sum of digits, text",
    section="4.1.2",
    data=lambda full: f"{100_000 if full else 20_000:,} sets of 1 to 10 digits 0..9 and their sums, generated",
    reductions=_reductions,
    methods={
        "Deep Sets": _method(deep_sets, rate=3e-3),
        "LSTM": _method(lstm, rate=1e-2),
        "GRU": _method(gru, rate=1e-2),
    },
    published={("Deep Sets", f"M={size}", "accuracy"): 1.0 for size in range(5, 96, 5)},
    notes=(
        "All methods see the same sets as often, with the absolute error as loss and a cosine schedule; LSTM and GRU "
        "in another order at every step, and with three times the parameters of Deep Sets."
    ),
    figures={"Accuracy against the number of digits": lambda records: figure(records, 100)},
)
