"""A Deep Sets model on heavy-tailed sizes (256 sets, mean 32, max about 600), forward + backward, sum."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn import MLP
from torch_geometric.nn.aggr import DeepSetsAggregation

from deepsets import Sets, nn

from .clock import compare, rows


def heavy_tailed(sets: int = 256, mean: int = 32, largest: int = 600, width: int = 16) -> Sets:
    """Pareto-like sizes: most sets are small, one is large."""
    generator = torch.Generator().manual_seed(0)
    raw = torch.rand(sets, generator=generator).pow(-0.8)
    sizes = (raw / raw.mean() * mean).round().clamp(1, largest).long()
    sizes[0] = largest
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
    return Sets(torch.randn(int(offsets[-1]), width, generator=generator), offsets)


def run() -> list[dict[str, object]]:
    sets = heavy_tailed()
    width = sets.width
    ours = nn.DeepSet(nn.mlp(width, 64, 64, 64), nn.mlp(64, 64, 1))
    theirs = DeepSetsAggregation(MLP([width, 64, 64, 64], norm=None), MLP([64, 64, 1], norm=None))
    padded, mask = sets.to_padded()
    plain = nn.mlp(width, 64, 64, 64), nn.mlp(64, 64, 1)

    def on_padded() -> Tensor:
        return plain[1]((plain[0](padded) * mask[..., None]).sum(1))

    index = sets.set_ids
    seconds = compare(
        {
            "deepsets": lambda: ours(sets).sum().backward(),
            "PyG by index": lambda: theirs(sets.values, index=index).sum().backward(),
            "PyG by ptr": lambda: theirs(sets.values, ptr=sets.offsets).sum().backward(),
            "padded + mask": lambda: on_padded().sum().backward(),
        }
    )
    case = f"256 sets, {sets.total} elements, largest {int(sets.sizes.max())}, phi 3 x 64, sum, forward + backward"
    return rows(case, seconds)
