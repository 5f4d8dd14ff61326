"""Models on heavy-tailed sizes (256 sets, mean 32, largest 600), forward + backward: DeepSet, and attention (SAB)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.nn import MLP
from torch_geometric.nn.aggr import DeepSetsAggregation

from deepsets import Sets, nn

from .clock import versus


def heavy_tailed(sets: int = 256, mean: int = 32, largest: int = 600, width: int = 16) -> Sets:
    """Pareto-like sizes: most sets are small, one is large."""
    generator = torch.Generator().manual_seed(0)
    raw = torch.rand(sets, generator=generator).pow(-0.8)
    sizes = (raw / raw.mean() * mean).round().clamp(1, largest).long()
    sizes[0] = largest
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
    return Sets(torch.randn(int(offsets[-1]), width, generator=generator), offsets)


def deep_set() -> list[dict[str, object]]:
    """The whole model, with sum pooling."""
    sets = heavy_tailed()
    width = sets.width
    ours = nn.DeepSet(nn.mlp(width, 64, 64, 64), nn.mlp(64, 64, 1))
    theirs = DeepSetsAggregation(MLP([width, 64, 64, 64], norm=None), MLP([64, 64, 1], norm=None))
    padded, mask = sets.to_padded()
    plain = nn.mlp(width, 64, 64, 64), nn.mlp(64, 64, 1)

    def on_padded() -> Tensor:
        return plain[1]((plain[0](padded) * mask[..., None]).sum(1))

    index = sets.set_ids
    case = f"DeepSet, 256 heavy-tailed sets, {sets.total} elements, largest 600, phi 3 x 64, sum"
    ways: dict[str, Callable[[], object]] = {
        "deepsets": lambda: ours(sets).sum().backward(),
        "PyG by index": lambda: theirs(sets.values, index=index).sum().backward(),
        "PyG by ptr": lambda: theirs(sets.values, ptr=sets.offsets).sum().backward(),
    }
    slow = {"deepsets": ways["deepsets"], "padded + mask": lambda: on_padded().sum().backward()}
    rows = [row for row in versus(case, slow) if row["way"] != "deepsets"]  # by itself: it would leave 3 turns for PyG
    return versus(case, ways, seconds=4.0, repeats=400) + rows


def attention() -> list[dict[str, object]]:
    """`SetAttention` against `MultiheadAttention` on padded sets."""
    sets = heavy_tailed(sets=64, width=32)
    ours = nn.SetAttention(32, num_heads=4)
    theirs = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    padded, mask = sets.to_padded()

    def on_padded() -> Tensor:
        return theirs(padded, padded, padded, key_padding_mask=~mask, need_weights=False)[0][mask]

    return versus(
        f"SetAttention, 64 heavy-tailed sets, {sets.total} elements, largest 600, 32 channels",
        {
            "deepsets": lambda: ours(sets).values.sum().backward(),
            "padded MultiheadAttention": lambda: on_padded().sum().backward(),
        },
    )


def run() -> list[dict[str, object]]:
    """Both models."""
    return deep_set() + attention()
