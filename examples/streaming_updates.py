"""Streaming updates: keep states, add new members, remove old ones.

A sensor sends readings all day. The model answers for the readings of the last seven days: each day the state of the
new readings is added, and the state of the day that leaves the window is subtracted. No reading is kept.
"""

from collections import deque

import matplotlib.pyplot as plt
import numpy as np
import torch

from deepsets import Sets, nn
from deepsets.train import Batch, train

WINDOW = 7


def readings(level: float, count: int, rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(rng.normal(level, 1.0 + 0.3 * abs(level), size=(count, 1)).astype(np.float32))


def loss(model: torch.nn.Module, batch: Batch) -> tuple[torch.Tensor, float]:
    errors = (model(batch.sets)[:, 0] - batch.y).square()
    return errors.sum(), len(errors)


def main(quick: bool = False) -> plt.Figure:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    levels = rng.uniform(-3, 3, size=100 if quick else 1000)
    sets = Sets.from_list([readings(level, rng.integers(50, 400), rng) for level in levels])
    # Sums, means and standard deviations can be subtracted; a maximum cannot.
    model = nn.DeepSet(nn.mlp(1, 32, 32), nn.mlp(64, 32, 1), pool=["mean", "std"])
    train(model, loss, Batch(sets, y=torch.from_numpy(levels).float()), epochs=3 if quick else 30, batch_size=32)
    model.eval()

    true = np.sin(np.arange(60) / 8) * 2
    days, kept, total, found, direct = deque(), deque(), None, [], []
    with torch.no_grad():
        for level in true:
            new = readings(level, int(rng.integers(20, 60)), rng)
            state = model.encode(Sets.from_list([new]), dtype=torch.float64)
            total = state if total is None else total + state
            days.append(state)
            kept.append(new)  # only to compare with
            if len(days) > WINDOW:
                total = total - days.popleft()
                kept.popleft()
            found.append(model.decode(total).item())
            direct.append(model(Sets.from_list([torch.cat(list(kept))])).item())
    print(f"largest difference to the prediction from all readings: {np.abs(np.subtract(found, direct)).max():.1e}")
    figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
    ax.plot(true, color="0.7", label="level of the day")
    ax.plot(found, label="prediction from states, last seven days")
    ax.set(xlabel="day", ylabel="level")
    ax.legend()
    return figure


if __name__ == "__main__":
    main().savefig("streaming_updates.png", dpi=120)
