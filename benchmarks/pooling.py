"""Poolings alone, forward + backward, against PyG's aggregations and plain torch; small batches; bandwidth; threads."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.nn import aggr

from deepsets import Sets, nn

from .clock import compare, machine, versus

Way = Callable[[], Tensor]


def batch(low: int, high: int, total: int, width: int) -> Sets:
    """Sets of sizes low..high with about `total` elements."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(low, high + 1, (2 * total // (low + high),), generator=generator)
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
    return Sets(torch.randn(int(offsets[-1]), width, generator=generator), offsets)


def both(way: Way, x: Tensor, grad: Tensor) -> None:
    """Forward and backward."""
    x.grad = None
    way().backward(grad)


class Scored(torch.nn.Module):
    """Scores that are given: attention pooling without the network before it."""

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.scores


def attention(sets: Sets) -> tuple[Way, aggr.Aggregation]:
    """Softmax-weighted sums of the members by given scores: ours, and PyG's aggregation."""
    scores = torch.randn(sets.total, 1, requires_grad=True)
    ours = nn.GatedAttentionPooling(sets.width)
    ours.scored = lambda s: (scores, s.values[:, None])  # type: ignore[method-assign]
    return lambda: ours(sets), aggr.AttentionalAggregation(Scored(scores))


def torch_ways(name: str, sets: Sets, x: Tensor) -> dict[str, Way]:
    """The same pooling by hand in plain torch."""
    index, count = sets.set_ids, len(sets)
    if name == "max":
        wide = index[:, None].expand_as(x)
        return {
            "segment_reduce": lambda: torch.segment_reduce(x, "max", offsets=sets.offsets, axis=0),
            "scatter_reduce": lambda: x.new_zeros(count, x.shape[1]).scatter_reduce(
                0, wide, x, "amax", include_self=False
            ),
        }
    if name == "sum":
        return {
            "segment_reduce": lambda: torch.segment_reduce(x, "sum", offsets=sets.offsets, axis=0),
            "index_add": lambda: x.new_zeros(count, x.shape[1]).index_add(0, index, x),
        }
    return {}


def padded(name: str, sets: Sets, grad: Tensor) -> Callable[[], None]:
    """Padding with a mask: the usual way without ragged kernels."""
    x, mask = sets.to_padded()
    x.requires_grad_()
    hidden = torch.where(mask[..., None], 0.0, -torch.inf)

    def way() -> None:
        x.grad = None
        ((x + hidden).amax(1) if name == "max" else (x * mask[..., None]).sum(1)).backward(grad)

    return way


@cache
def memory_limit() -> tuple[Callable[[Tensor], object], Callable[[Tensor], object]]:
    """Loops in C that only read and only write, on the threads of torch."""
    with tempfile.TemporaryDirectory() as folder:
        source, unit, library = Path(__file__).with_name("memory_limit.c"), f"{folder}/limit.o", f"{folder}/limit.so"
        subprocess.run(["cc", "-O3", "-march=native", "-fopenmp", "-fPIC", "-c", source, "-o", unit], check=True)
        subprocess.run(["cc", "-shared", unit, "-o", library], check=True)  # OpenMP is that of torch
        loaded = ctypes.CDLL(library)
    for function in (loaded.read_memory, loaded.write_memory):
        function.argtypes = [ctypes.c_void_p, ctypes.c_long]
    return (
        lambda x: loaded.read_memory(x.data_ptr(), x.numel()),
        lambda x: loaded.write_memory(x.data_ptr(), x.numel()),
    )


def case(name: str, theirs: aggr.Aggregation | None, low: int, high: int) -> list[dict[str, object]]:
    """One pooling on one kind of sizes."""
    sets = batch(low, high, 50_000, 128)
    x = sets.values.requires_grad_()
    index, grad = sets.set_ids, torch.randn(len(sets), 128)
    if theirs is None:
        ours, theirs = attention(sets)
    else:
        pool = nn.pooling(name)
        ours = lambda: pool(sets)  # noqa: E731
    ways = {
        "deepsets": ours,
        "PyG by index": lambda: theirs(x, index=index, dim_size=len(sets)),
        "PyG by ptr": lambda: theirs(x, ptr=sets.offsets, dim_size=len(sets)),
        **torch_ways(name, sets, x),
    }
    turns: dict[str, Callable[[], object]] = {key: partial(both, way, x, grad) for key, way in ways.items()}
    if name in ("max", "sum"):
        turns["padded + mask"] = padded(name, Sets(sets.values.detach(), sets.offsets), grad)
    if name == "sum" and shutil.which("cc"):
        (read, write), gradient = memory_limit(), torch.empty_like(x, requires_grad=False)
        turns["memory alone, in C: read all members, write all gradients"] = lambda: (read(x), write(gradient))
    return versus(f"{name} pooling, sets of {low}–{high}", turns)


def small() -> list[dict[str, object]]:
    """16 sets of 1–20: what a call costs."""
    sets = batch(1, 20, 168, 32)
    x, count, grad = sets.values.requires_grad_(), len(sets), torch.randn(16, 32)
    index, pool = sets.set_ids, nn.SumPooling()
    phi, rho = nn.mlp(32, 64), nn.mlp(64, 1)
    model = nn.DeepSet(torch.nn.Sequential(*phi, torch.nn.ReLU()), rho)

    def by_hand() -> Tensor:
        h = phi(x).relu()
        return rho(h.new_zeros(count, 64).index_add(0, index, h))

    one = torch.ones(count, 1)
    pairs: dict[str, tuple[Way, Way, Tensor]] = {
        "sum pooling": (lambda: pool(sets), lambda: x.new_zeros(count, 32).index_add(0, index, x), grad),
        "DeepSet": (lambda: model(sets), by_hand, one),
    }
    rows = []
    for name, (ours, theirs, g) in pairs.items():
        ways: dict[str, Callable[[], object]] = {"deepsets": partial(both, ours, x, g)}
        ways["index_add by hand"] = partial(both, theirs, x, g)
        rows += versus(f"small batch, 16 sets of 1–20, {name}", ways, repeats=400, warmup=20)
    return rows


def bandwidth() -> list[dict[str, object]]:
    """The forward pass of sum and max over large sets beside a loop that only reads the same memory."""
    sets = batch(300, 500, 200_000, 128)
    x, read = sets.values, memory_limit()[0] if shutil.which("cc") else Tensor.sum
    size = x.numel() * 4
    ways: dict[str, Callable[[], object]] = {"read": lambda: read(x), "torch.sum": x.sum}
    ways |= {"sum": lambda: nn.SumPooling()(sets), "max": lambda: nn.MaxPooling()(sets)}
    held = sets.with_values(x.detach().requires_grad_())

    def for_gradient() -> None:
        with torch.enable_grad():
            nn.MaxPooling()(held)

    ways["max, and who has it for the gradient"] = for_gradient
    with machine("idle"), torch.no_grad():
        seconds = compare(ways)
    return [
        {"case": "forward, 100 MB in sets of 300–500", "load": "idle", "way": name, "GB/s": size / s / 1e9,
         "share of the bandwidth": seconds["read"] / s}
        for name, s in seconds.items()
    ]  # fmt: skip


def threads() -> list[dict[str, object]]:
    """All threads against one; the number is changed for this measurement only."""
    sets, most = batch(300, 500, 400_000, 128), torch.get_num_threads()
    x, grad = sets.values.requires_grad_(), torch.randn(len(sets), 128)

    def way(name: str, count: int) -> None:
        torch.set_num_threads(count)
        both(lambda: nn.pooling(name)(sets), x, grad)
        torch.set_num_threads(most)

    rows = []
    for name in ("sum", "max", "logsumexp"):
        ways: dict[str, Callable[[], object]] = {f"{most} threads": partial(way, name, most)}
        ways["1 thread"] = partial(way, name, 1)
        rows += versus(f"threads, {name} pooling of 400,000 x 128", ways, ours=f"{most} threads")
    return rows


def run() -> list[dict[str, object]]:
    """All poolings, large and small sets."""
    opponents = {
        "max": aggr.MaxAggregation(),
        "sum": aggr.SumAggregation(),
        "mean": aggr.MeanAggregation(),
        "std": aggr.StdAggregation(),
        "attention": None,
    }
    sizes = ((300, 500), (1, 10))
    rows = [row for name, theirs in opponents.items() for low, high in sizes for row in case(name, theirs, low, high)]
    return rows + small() + bandwidth() + threads()
