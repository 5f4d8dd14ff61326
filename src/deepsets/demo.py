"""`make demo`: what the library does, in two minutes and without any data to download."""

from __future__ import annotations

import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch import nn as tnn

from . import Sets, nn
from .estimators import SetRegressor
from .train import Batch, train


def random_digits(count: int, low: int, high: int, seed: int) -> Batch:
    """Sets of low..high digits, and their sums."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(low, high + 1, count)
    digits = torch.from_numpy(rng.integers(0, 10, sizes.sum()))
    offsets = torch.from_numpy(np.concatenate([[0], sizes.cumsum()]))
    sets = Sets(digits, offsets)
    return Batch(sets, nn.pooling("sum")(sets.map(lambda d: d[:, None].float())))


def sum_of_digits(console: Console) -> None:
    """Section 4.1.2 of the paper: learnt from sums of at most 10 digits, asked for sums of up to 1000."""
    console.rule("Sum of digits: trained on sets of at most 10, asked for sets of up to 1000")
    phi = tnn.Sequential(tnn.Embedding(10, 32), tnn.Tanh(), tnn.Linear(32, 16))
    model = nn.DeepSet(phi, tnn.Linear(16, 1), pool="sum")

    def loss(model: tnn.Module, batch: Batch) -> tuple[Tensor, int]:
        assert isinstance(batch.y, Tensor)
        return (model(batch.sets) - batch.y).abs().sum(), len(batch.sets)

    torch.manual_seed(0)
    train(model, loss, random_digits(20_000, 1, 10, 0), epochs=30, batch_size=128, learning_rate=3e-3, progress=True)
    table = Table("digits in a set", "sums that are exact")
    model.eval()
    for size in (5, 10, 50, 100, 1000):
        test = random_digits(500, size, size, seed=1)
        assert isinstance(test.y, Tensor)
        with torch.no_grad():
            right = float((model(test.sets).round() == test.y).float().mean())
        table.add_row(str(size), f"{right:.1%}")
    console.print(table)


def sets_from_a_table(console: Console) -> None:
    """A scientist's case: clusters of members, one number for each cluster, and which member matters."""
    console.rule("A number for each set, from a table of members: how far apart are the two farthest members?")
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(rng.integers(3, 20), 2)) * rng.uniform(0.5, 2) for _ in range(600)]
    y = np.array([np.linalg.norm(x[:, None] - x, axis=-1).max() for x in X])
    start = time.perf_counter()
    ours = SetRegressor(random_state=0, verbose=True).fit(X[:400], y[:400])
    summary = np.array([np.r_[x.mean(0), x.std(0), x.min(0), x.max(0), len(x)] for x in X])
    ridge = make_pipeline(StandardScaler(), RidgeCV()).fit(summary[:400], y[:400])
    table = Table("", "R² on 200 other sets")
    table.add_row("ridge on mean, std, min, max", f"{ridge.score(summary[400:], y[400:]):.3f}")
    table.add_row(f"SetRegressor() ({time.perf_counter() - start:.0f} s)", f"{ours.score(X[400:], y[400:]):.3f}")
    console.print(table)
    parts = ours.explain(X[400:401])[0][:, 0]
    far = np.unravel_index(np.linalg.norm(X[400][:, None] - X[400], axis=-1).argmax(), (len(X[400]),) * 2)
    order = np.argsort(-parts)[:3]
    console.print(f"In one set the farthest pair is members {far[0]} and {far[1]}; leaving one member out changes the")
    console.print(f"answer most for members {', '.join(f'{i} ({parts[i]:+.2f})' for i in order)}.\n")


def main() -> None:
    """Runs both, and says where to look next."""
    console = Console()
    sum_of_digits(console)
    sets_from_a_table(console)
    console.print("Next: README.md for the first lines of your own, docs/ for a page on each part.")


if __name__ == "__main__":
    main()
