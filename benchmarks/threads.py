"""A fit by the training loop with all threads against one thread, each in processes of its own, which take turns."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from statistics import median

import torch
from torch.nn import functional as F

from .clock import LOADS, machine

# sets, members of each, features, hidden width, epochs
FITS = {"small": (120, 70, 60, 64, 40), "large": (512, 100, 60, 256, 4), "largest": (256, 400, 60, 256, 3)}
REPEATS = {"small": 7, "large": 3, "largest": 3}


def fit(name: str) -> list[float]:
    """Seconds of fits, after one epoch that warms up."""
    from deepsets import Sets, nn
    from deepsets.train import Batch, train

    sets, members, features, width, epochs = FITS[name]
    torch.manual_seed(0)
    model = nn.DeepSet(nn.mlp(features, width, width, width), nn.mlp(2 * width, width, 2), pool=["max", "mean"])
    data = Batch(Sets.from_list(list(torch.randn(sets, members, features))), torch.randint(2, (sets,)))

    def loss(model: torch.nn.Module, batch: Batch) -> tuple[torch.Tensor, int]:
        return F.cross_entropy(model(batch.sets), batch.y, reduction="sum"), len(batch.sets)

    train(model, loss, data, epochs=1, progress=False)
    seconds = []
    for _ in range(REPEATS[name]):
        start = time.perf_counter()
        train(model, loss, data, epochs=epochs, progress=False)
        seconds.append(time.perf_counter() - start)
    return seconds


def run(rounds: int = 2) -> list[dict[str, object]]:
    """All fits, idle and busy."""
    most = len(os.sched_getaffinity(0))
    ways = {f"{most} threads": {"OMP_NUM_THREADS": str(most)}, "1 thread": {"OMP_NUM_THREADS": "1"}}
    rows: list[dict[str, object]] = []
    for name, (sets, members, features, width, epochs) in FITS.items():
        case = f"fit of a DeepSet, {sets} sets of {members} x {features}, width {width}, {epochs} epochs"
        for load in LOADS:
            seconds = {way: list[float]() for way in ways}
            with machine(load):
                for _ in range(rounds):
                    for way, variables in ways.items():
                        command = [sys.executable, "-m", "benchmarks.threads", name]
                        done = subprocess.run(
                            command, check=True, stdout=subprocess.PIPE, env={**os.environ, **variables}
                        )
                        seconds[way] += json.loads(done.stdout)
            middle = {way: median(found) for way, found in seconds.items()}
            rows += [
                {
                    "case": case,
                    "load": load,
                    "way": way,
                    "ms": 1e3 * s,
                    "ours is faster by": s / middle[f"{most} threads"],
                }
                for way, s in middle.items()
            ]
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=list(FITS))
    print(json.dumps(fit(parser.parse_args().name)))
