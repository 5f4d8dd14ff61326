"""Particle jets: an energy flow network with given weights.

A jet is a set of particles. An energy flow network (EFN) is a Deep Set whose sum is weighted by the energy of each
particle, so that it does not see particles without energy or how one particle splits into two: it is infrared and
collinear safe. `Sets` takes the weights; no change of the model is needed.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch.nn import functional as F

from deepsets import Sets, nn
from deepsets.train import Batch, train


def jets(count: int, seed: int) -> Batch:
    """Signal jets have two cores, background jets one; energies follow a power law and sum to 1."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=count)
    angles, energies = [], []
    for label in labels:
        n = int(rng.integers(10, 60))
        core = rng.normal(scale=0.12, size=(2, 2)) if label else np.zeros((2, 2))
        angle = core[rng.integers(2, size=n)] + rng.standard_t(3, size=(n, 2)) * 0.08
        energy = rng.pareto(1.5, size=n) + 0.05
        angles.append(angle.astype(np.float32))
        energies.append((energy / energy.sum()).astype(np.float32))
    return Batch(Sets.from_list(angles, weights=energies), y=torch.from_numpy(labels).float())


def loss(model: torch.nn.Module, batch: Batch) -> tuple[torch.Tensor, float]:
    logits = model(batch.sets)[:, 0]
    return F.binary_cross_entropy_with_logits(logits, batch.y, reduction="sum"), len(logits)


def main(quick: bool = False) -> plt.Figure:
    torch.manual_seed(0)
    model = nn.DeepSet(nn.mlp(2, 64, 64, 16), nn.mlp(16, 64, 1), pool="sum")
    train(model, loss, jets(200 if quick else 4000, 0), epochs=3 if quick else 20, batch_size=64)
    model.eval()
    test = jets(200 if quick else 2000, 1)
    with torch.no_grad():
        scores = model(test.sets)[:, 0]
        print(f"area under the ROC curve: {roc_auc_score(test.y, scores):.3f}")
        # Collinear safety: split every particle into two halves at the same place.
        split = [np.repeat(jet.numpy(), 2, axis=0) for jet in test.sets]
        halves = [np.repeat(w.numpy(), 2) / 2 for w in test.sets.weights.split(test.sets.sizes.tolist())]
        change = (model(Sets.from_list(split, weights=halves))[:, 0] - scores).abs().max()
        print(f"largest change when every particle splits in two: {float(change):.1e}")
        axis = torch.linspace(-0.5, 0.5, 100)
        grid = torch.cartesian_prod(axis, axis)
        filters = model.phi(grid).reshape(100, 100, -1)
    figure, axes = plt.subplots(1, 4, figsize=(11, 3), sharey=True, layout="constrained")
    for ax, channel in zip(axes, range(4), strict=True):
        ax.contourf(axis, axis, filters[..., channel].T, levels=15, cmap="viridis")
        ax.set(title=f"filter {channel}", xlabel="rapidity")
    axes[0].set_ylabel("azimuth")
    return figure


if __name__ == "__main__":
    main().savefig("jets_energy_weights.png", dpi=120)
