"""Attention pooling: which member does the prediction rest on?

Gated attention pooling (attention-based multiple instance learning) weights the members of a set. Here a set is a strip
of digits, positive if it holds an 8. Attention tells what the pooling looks at; what the prediction rests on is seen by
leaving out one digit after another.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

from deepsets import Sets, nn, plot
from deepsets.train import Batch, train


def strips(images: np.ndarray, labels: np.ndarray, count: int, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    rows = [rng.integers(len(images), size=rng.integers(5, 11)) for _ in range(count)]
    rows = [r[labels[r] != 8] if i % 2 else r for i, r in enumerate(rows)]
    rows = [r if len(r) else np.flatnonzero(labels == 1)[:1] for r in rows]
    sets = Sets.from_list([torch.from_numpy(images[r]) for r in rows])
    return Batch(sets, y=torch.tensor([float((labels[r] == 8).any()) for r in rows]))


def loss(model: torch.nn.Module, batch: Batch) -> tuple[torch.Tensor, float]:
    logits = model(batch.sets)[:, 0]
    return F.binary_cross_entropy_with_logits(logits, batch.y, reduction="sum"), len(logits)


def main(quick: bool = False) -> plt.Figure:
    torch.manual_seed(0)
    digits = load_digits()
    images, half = (digits.data / 16).astype(np.float32), len(digits.data) // 2
    data = strips(images[:half], digits.target[:half], 100 if quick else 1000, seed=0)
    test = strips(images[half:], digits.target[half:], 100 if quick else 400, seed=1)
    pool = nn.GatedAttentionPooling(64)
    model = nn.DeepSet(nn.mlp(64, 128, 64), nn.mlp(64, 32, 1), pool=pool)
    train(model, loss, data, epochs=3 if quick else 30, batch_size=32)
    model.eval()
    with torch.no_grad():
        accuracy = float(((model(test.sets)[:, 0] > 0) == (test.y > 0)).float().mean())
        print(f"accuracy: {accuracy:.3f}")
        chosen = test.sets[[int(((test.y > 0) & (test.sets.sizes > 6)).nonzero()[0])]]
        change = (model(chosen) - nn.leave_one_out(model, chosen))[:, 0]
    figure = plt.figure(figsize=(9, 5), layout="constrained")
    top, bottom = figure.subfigures(2, height_ratios=[2, 3])
    for place, (image, value) in enumerate(zip(chosen.values, change, strict=True), start=1):
        ax = top.add_subplot(1, len(change), place)
        ax.imshow(image.reshape(8, 8).numpy(), cmap="gray_r")
        ax.set_title(f"{round(float(value), 1) + 0:+}", color="crimson" if value == change.max() else "black")
        ax.set_axis_off()
    top.suptitle("change of the logit by each digit: the 8 decides")
    plot.attention(model, chosen, names=[f"digit {i + 1}" for i in range(len(change))], ax=bottom.subplots())
    return figure


if __name__ == "__main__":
    main().savefig("attention_weights.png", dpi=120)
