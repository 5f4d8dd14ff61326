"""A training step of the paper's point-cloud network: 64 clouds of 1000 points, three equivariant layers of 256, max.

Opponent: the layers as published, (x - max x)Γ + β on dense tensors in plain PyTorch. Each way runs in a process of
its own, so that neither profits from what the other did to the allocator; the processes take turns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from itertools import pairwise
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional as F

from .clock import LOADS, machine

CLOUDS, POINTS, WIDTH, CLASSES = 64, 1000, 256, 40
STEPS = 3


def published() -> list[float]:
    """Seconds of training steps with dense tensors and the published form of the layer."""

    class Layer(torch.nn.Module):
        def __init__(self, before: int, after: int) -> None:
            super().__init__()
            self.gamma = torch.nn.Linear(before, after)

        def forward(self, x: Tensor) -> Tensor:
            return self.gamma(x - x.max(1, keepdim=True)[0])

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            tanh = torch.nn.Tanh
            self.phi = torch.nn.Sequential(
                Layer(3, WIDTH), tanh(), Layer(WIDTH, WIDTH), tanh(), Layer(WIDTH, WIDTH), tanh()
            )
            self.rho = head()

        def forward(self, x: Tensor) -> Tensor:
            return self.rho(self.phi(x).max(1)[0])

    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), 1e-3, weight_decay=1e-7, eps=1e-3)
    x, y = torch.randn(CLOUDS, POINTS, 3), torch.randint(CLASSES, (CLOUDS,))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(x), y).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 5)
        optimizer.step()

    return timed(step)


def head() -> torch.nn.Sequential:
    """The network after the pooling."""
    nn = torch.nn
    return nn.Sequential(
        nn.Dropout(0.5), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(0.5), nn.Linear(WIDTH, CLASSES)
    )


def ours(half: bool = False) -> list[float]:
    """Seconds of training steps of `deepsets.train` with the same network from this library; half: in bfloat16."""
    from deepsets import Sets, nn
    from deepsets.train import Batch, train

    layers = [nn.Equivariant(a, WIDTH, pool="max", form="factored", activation="tanh") for a in (3, WIDTH, WIDTH)]
    network = nn.DeepSet(nn.SetSequential(*layers), head(), pool="max")
    sets = Sets.from_list(list(torch.randn(CLOUDS, POINTS, 3)))
    data = Batch(sets, torch.randint(CLASSES, (CLOUDS,)))

    def loss(model: torch.nn.Module, batch: Batch) -> tuple[Tensor, int]:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            return F.cross_entropy(model(batch.sets), batch.y, reduction="sum"), len(batch.sets)

    history = train(
        network,
        loss,
        data,
        epochs=STEPS + 2,
        batch_size=CLOUDS,
        clip=5,
        optimizer=lambda ps: torch.optim.Adam(ps, 1e-3, weight_decay=1e-7, eps=1e-3),
        progress=False,
    )
    ends = [row["seconds"] for row in history]
    return [after - before for before, after in pairwise(ends[1:])]


def halves() -> list[float]:
    """The same under autocast."""
    return ours(half=True)


def gemm() -> list[float]:
    """Seconds of the matrix products of one step, alone, with their memory at hand."""
    a, b = torch.randn(CLOUDS * POINTS, WIDTH), torch.randn(WIDTH, WIDTH)
    out, small = torch.empty_like(a), torch.empty_like(b)

    def products() -> None:
        for _ in range(4):  # forward and gradient of the input, two layers
            torch.mm(a, b, out=out)
        for _ in range(2):  # gradient of the weights
            torch.mm(a.T, a, out=small)

    return timed(products)


def linear(layer: type[torch.nn.Linear] = torch.nn.Linear) -> list[float]:
    """Seconds of a linear map of all points, forward and backward."""
    x, one = torch.randn(CLOUDS * POINTS, WIDTH, requires_grad=True), layer(WIDTH, WIDTH)
    grad = torch.randn(CLOUDS * POINTS, WIDTH)

    def step() -> None:
        x.grad = None
        one(x).backward(grad)

    return timed(step)


def our_linear() -> list[float]:
    """The same with the linear map of this library's layers."""
    from deepsets.nn.sequential import Linear

    return linear(Linear)


def timed(step: object) -> list[float]:
    """Seconds of STEPS calls, after two that warm up."""
    seconds = []
    for _ in range(STEPS + 2):
        start = time.perf_counter()
        step()  # type: ignore[operator]
        seconds.append(time.perf_counter() - start)
    return seconds[2:]


# Ways of each case by their function; the first one is ours.
CASES = {
    f"training step, {CLOUDS} clouds of {POINTS} x 3, {WIDTH} channels, max": {
        "ours": "deepsets",
        "published": "published layers",
        "gemm": "matrix products alone",
        "halves": "deepsets in bfloat16",
    },
    f"linear map of {CLOUDS * POINTS} rows, {WIDTH} x {WIDTH}, forward + backward": {
        "our_linear": "deepsets",
        "linear": "torch.nn.Linear",
    },
}


def measure(load: str, rounds: int) -> dict[str, float]:
    """Median seconds of each way."""
    ways = [way for case in CASES.values() for way in case if way != "halves" or load == "idle"]
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    with machine(load):
        for _ in range(rounds):
            for way in ways:
                # bfloat16 may end the process: some virtual machines announce AMX and do not have it
                done = subprocess.run(
                    [sys.executable, "-m", "benchmarks.point_clouds", way],
                    check=way != "halves",
                    stdout=subprocess.PIPE,
                    text=True,
                )
                seconds[way] += json.loads(done.stdout) if done.returncode == 0 else []
    return {way: median(times) for way, times in seconds.items() if times}


def run(rounds: int = 2) -> list[dict[str, object]]:
    """Idle and busy."""
    rows: list[dict[str, object]] = []
    for load in LOADS:
        middle = measure(load, rounds)
        for case, ways in CASES.items():
            first = middle[next(iter(ways))]
            rows += [
                {"case": case, "load": load, "way": name, "ms": 1e3 * s, "ours is faster by": s / first}
                for way, name in ways.items()
                if (s := middle.get(way)) is not None
            ]
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=[way for case in CASES.values() for way in case])
    torch.manual_seed(0)
    print(json.dumps(globals()[parser.parse_args().way]()))
