"""Max pooling alone, forward + backward, 50,000 x 128 elements, against PyG's aggregation by index and by ptr."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch_geometric.nn.aggr import Aggregation, MaxAggregation, SumAggregation

from deepsets import Sets, nn

from .clock import compare, rows


def batch(low: int, high: int, total: int, width: int) -> Sets:
    """Sets of sizes low..high with about `total` elements."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(low, high + 1, (2 * total // (low + high),), generator=generator)
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
    return Sets(torch.randn(int(offsets[-1]), width, generator=generator), offsets)


def case(name: str, theirs: Aggregation, low: int, high: int) -> list[dict[str, object]]:
    """One pooling on one kind of sizes."""
    sets = batch(low, high, 50_000, 128)
    ours = nn.pooling(name)
    x = sets.values.requires_grad_()
    index, grad = sets.set_ids, torch.randn(len(sets), 128)
    ways = {
        "deepsets": lambda: ours(sets),
        "PyG by index": lambda: theirs(x, index=index),
        "PyG by ptr": lambda: theirs(x, ptr=sets.offsets),
    }

    def both(way: Callable[[], torch.Tensor]) -> None:
        x.grad = None
        way().backward(grad)

    seconds = compare({name: partial(both, way) for name, way in ways.items()})
    out = rows(f"{name}, sets of {low}-{high}, forward + backward", seconds)
    with torch.no_grad():
        return out + rows(f"{name}, sets of {low}-{high}, forward", compare(ways))


def run() -> list[dict[str, object]]:
    """Max and sum, large and small sets."""
    opponents = {"max": MaxAggregation(), "sum": SumAggregation()}
    sizes = ((300, 500), (1, 10))
    return [row for name, theirs in opponents.items() for low, high in sizes for row in case(name, theirs, low, high)]
