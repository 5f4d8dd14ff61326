"""Sum of digits given as symbols: trained on at most 10, tested on up to 1000 (section 4.1.2)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deepsets.nn import DeepSet
from deepsets.train import Batch, train

from ..baselines.networks import Recurrent
from ..datasets.digits import draw, exact_sums, sums
from ..experiment import Experiment, Measure, Outcome, Trial, new_figure
from ..report.scoreboard import Claim, Headline, beats
from ..runner import Record


def curve(records: Sequence[Record], method: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the numbers of digits M, and mean and deviation of the accuracy over the seeds: (K,) each."""
    found: dict[int, list[float]] = {}
    for record in records:
        for part in record.parts.values() if record.method == method else ():
            for row in part["measures"]:
                if row["data"].startswith("M="):
                    found.setdefault(int(row["data"][2:]), []).append(row["value"])
    sizes = sorted(found)
    return np.array(sizes), np.array([np.mean(found[m]) for m in sizes]), np.array([np.std(found[m]) for m in sizes])


def figure(records: Sequence[Record], most: int, bounds: Sequence[str] = ()) -> Any:
    """Draw the accuracy against M up to `most`, a line and a band of one deviation for each method.

    For methods in `bounds` a dotted line shows (1 − p)^M, where p is the error of a single digit, at M = 1.
    """
    drawing = new_figure(6, 4)
    axes = drawing.subplots()
    for method in dict.fromkeys(record.method for record in records):
        sizes, mean, deviation = curve(records, method)
        shown = (sizes > 1) & (sizes <= most)
        (line,) = axes.plot(sizes[shown], mean[shown], marker="o", markersize=3, label=method)
        low, high = (mean - deviation)[shown], (mean + deviation)[shown]
        axes.fill_between(sizes[shown], low, high, alpha=0.2, color=line.get_color(), linewidth=0)
        if method in bounds and 1 in sizes:
            dense, single = np.arange(1, most + 1), mean[sizes == 1]
            label = f"(1 − p)^M, p = {100 * (1 - single.item()):.2f} %"
            axes.plot(dense, single**dense, ":", color=line.get_color(), label=label)
    axes.set(xlabel="M, digits in a set", ylabel="accuracy (exact sum)", ylim=(-0.03, 1.03))
    axes.axvspan(0, 10, color="0.93", zorder=0)
    axes.text(5, 0.02, "as in\ntraining", ha="center", fontsize=7, color="0.4")
    axes.legend(fontsize=8)
    return drawing


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
        chosen = trial.choose(epochs=10, batch_size=256, rate=rate, sets=100_000 if trial.full else 20_000)
        model = trial.build(build)
        source = torch.Generator().manual_seed(trial.seed)
        sets = draw(DIGITS, chosen.sets, (1, 10), source)
        train(
            model, absolute_error, Batch(sets, sums(sets, DIGITS)),
            epochs=chosen.epochs, batch_size=chosen.batch_size, learning_rate=chosen.rate, weight_decay=0.0,
            seed=trial.seed, checkpoint_dir=trial.folder, progress=trial.progress,
        )  # fmt: skip
        trial.keep(model)
        found = accuracy(model, 5000 if trial.full else 500, trial.seed)
        return Outcome([Measure(f"M={size}", "accuracy", value) for size, value in found.items()])

    return run


def absolute_error(model: nn.Module, batch: Batch) -> tuple[Tensor, int]:
    """Return the sum of the absolute errors, and their number."""
    assert isinstance(batch.y, Tensor)
    return (model(batch.sets)[:, 0] - batch.y).abs().sum(), len(batch.y)


@torch.no_grad()
def accuracy(model: nn.Module, count: int, seed: int) -> dict[int, float]:
    """Return the share of exact sums, after rounding, over `count` sets of each size M; in float64."""
    model = model.eval().double()
    source = torch.Generator().manual_seed(1_000_000 + seed)
    found = {}
    for size in SIZES:
        sets = draw(DIGITS, min(count, 1000) if size == 1000 else count, (size, size), source)
        answers = [model(sets[rows])[:, 0] for rows in torch.arange(len(sets)).split(1000)]
        found[size] = exact_sums(torch.cat(answers), sums(sets, DIGITS))
    return found


EXPERIMENT = Experiment(
    name="digits-text",
    title="Sum of digits, text",
    section="4.1.2",
    methods={
        "Deep Sets": _method(deep_sets, rate=3e-3),
        "LSTM": _method(lstm, rate=1e-2),
        "GRU": _method(gru, rate=1e-2),
    },
    published={("Deep Sets", f"M={size}", "accuracy"): 1.0 for size in range(5, 96, 5)},
    figures={"Accuracy against the number of digits": lambda records: figure(records, 100)},
    networks={
        name: lambda full, part, build=build: build()  # type: ignore[misc]
        for name, build in {"Deep Sets": deep_sets, "LSTM": lstm, "GRU": gru}.items()
    },
    headlines=[Headline("sum of 50 digits as text, accuracy", "M=50", "accuracy", best="")],
    claims=[
        Claim(
            "trained on sets of at most 10 digits, Deep Sets adds up to 100 exactly; LSTM and GRU do not",
            beats("Deep Sets", ["LSTM", "GRU"], [(f"M={m}", "accuracy") for m in (50, 100)]),
        )
    ],
)
