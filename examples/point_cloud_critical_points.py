"""Point clouds: which points decide the class?

A network with max pooling looks only at the points that are the maximum of some channel: its critical points. They
outline the shape. The model is plain PyTorch; `deepsets` gives the layers, the ragged batch and the loop.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn import functional as F

from deepsets import Sets, nn
from deepsets.train import Batch, train

SHAPES = ("sphere", "cube", "torus")


def cloud(shape: int, points: int, rng: np.random.Generator) -> np.ndarray:
    if shape == 0:
        x = rng.normal(size=(points, 3))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    elif shape == 1:
        x = rng.uniform(-1, 1, size=(points, 3))
        x[np.arange(points), rng.integers(3, size=points)] = rng.choice([-1, 1], size=points)
    else:
        a, b = rng.uniform(0, 2 * np.pi, size=(2, points))
        ring = 0.7 + 0.3 * np.cos(b)
        x = np.stack([ring * np.cos(a), ring * np.sin(a), 0.3 * np.sin(b)], axis=1)
    rotation, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return (x * rng.uniform(0.8, 1.2) @ rotation + rng.normal(scale=0.02, size=x.shape)).astype(np.float32)


def data(count: int, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=count)
    clouds = [cloud(label, rng.integers(100, 300), rng) for label in labels]
    return Batch(Sets.from_list(clouds), y=torch.from_numpy(labels))


def loss(model: torch.nn.Module, batch: Batch) -> tuple[torch.Tensor, float]:
    return F.cross_entropy(model(batch.sets), batch.y, reduction="sum"), len(batch.y)


def main(quick: bool = False) -> plt.Figure:
    torch.manual_seed(0)
    phi = nn.SetSequential(nn.Equivariant(3, 64, activation="relu"), nn.Equivariant(64, 128, activation="relu"))
    model = nn.DeepSet(phi, nn.mlp(128, 64, 3), pool="max")
    train(model, loss, data(60 if quick else 600, 0), epochs=5 if quick else 40, batch_size=32, learning_rate=2e-3)
    model.eval()
    test = data(60 if quick else 300, 1)
    with torch.no_grad():
        print(f"accuracy: {float((model(test.sets).argmax(1) == test.y).float().mean()):.3f}")
    figure = plt.figure(figsize=(9, 3.2), layout="constrained")
    for place, shape in enumerate(SHAPES):
        i = int((test.y == place).nonzero()[0])
        with torch.no_grad():
            features = phi(test.sets[[i]]).values  # (points, channels)
        critical = features.argmax(0).unique()
        x = test.sets[i].numpy()
        ax = figure.add_subplot(1, 3, place + 1, projection="3d")
        ax.scatter(*x.T, s=3, alpha=0.3)
        ax.scatter(*x[critical].T, s=20, color="crimson")
        ax.set_title(f"{shape}: {len(critical)} of {len(x)} points")
        ax.set_axis_off()
    return figure


if __name__ == "__main__":
    main().savefig("point_cloud_critical_points.png", dpi=120)
