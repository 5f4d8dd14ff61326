"""Your own layers in your own loop: plain PyTorch.

Everything in `deepsets.nn` is a `torch.nn.Module`; `Sets` moves to devices, indexes and concatenates like a tensor. Use
them in whatever training code you have. Here: the second largest number of a set, with a layer of one's own.
"""

import matplotlib.pyplot as plt
import torch

from deepsets import Sets, nn


class Residual(nn.SetLayer):
    """A residual equivariant layer: any module from `Sets` to `Sets` of the same sizes is a set layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Equivariant(width, width, pool=["max", "mean"], activation="relu")

    def forward(self, sets: Sets) -> Sets:
        return sets.with_values(sets.values + self.inner(sets).values)


def data(count: int, generator: torch.Generator) -> tuple[Sets, torch.Tensor]:
    sizes = torch.randint(2, 20, (count,), generator=generator)
    sets = [torch.rand(int(n), 1, generator=generator) for n in sizes]
    return Sets.from_list(sets), torch.stack([x.flatten().topk(2).values[1] for x in sets])


def main(quick: bool = False) -> plt.Figure:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    phi = nn.SetSequential(torch.nn.Linear(1, 64), Residual(64), Residual(64))
    model = nn.DeepSet(phi, nn.mlp(64, 64, 1), pool="max")
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(50 if quick else 800):
        sets, y = data(64, generator)
        loss = (model(sets)[:, 0] - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    sets, y = data(500, generator)
    with torch.no_grad():
        found = model(sets)[:, 0]
    print(f"mean absolute error on new sets: {float((found - y).abs().mean()):.4f}")
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    axes[0].semilogy(losses)
    axes[0].set(xlabel="step", ylabel="squared error", title="training")
    axes[1].scatter(y, found, s=6, alpha=0.5)
    axes[1].axline((0.5, 0.5), slope=1, color="black", linewidth=0.8)
    axes[1].set(xlabel="second largest number", ylabel="prediction", title="new sets")
    return figure


if __name__ == "__main__":
    main().savefig("own_loop.png", dpi=120)
