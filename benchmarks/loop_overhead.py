"""`deepsets.train` against a bare PyTorch loop that does the same steps: same batches, same network, same optimizer.

The bare loop is given the order of the sets and gathers its batches, or gets them ready-made, outside the clock (what
no loop that shuffles can have). Ours shuffles, balances and gathers, seeds every step, watches loss and gradient,
counts, and can be interrupted.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from deepsets import Sets, nn
from deepsets.train import Batch, balanced, train

from .clock import compare

CASES = {
    "small: 512 sets of 1..30, phi 8-64-64, batches of 32": (512, 30, 8, 64, 32),
    "medium: 512 sets of 1..200, phi 16-128-128, batches of 64": (512, 200, 16, 128, 64),
}


def loss(model: torch.nn.Module, batch: Batch) -> tuple[Tensor, int]:
    return F.mse_loss(model(batch.sets), batch.y, reduction="sum"), len(batch.sets)


def bare(network: torch.nn.Module, batches: Iterable[Batch]) -> None:
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3, weight_decay=0.01, fused=True)
    network.train()
    for batch in batches:
        optimizer.zero_grad()
        total, count = loss(network, batch)
        (total / count).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()


def run(repeats: int = 15) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for case, (count, largest, width, hidden, batch_size) in CASES.items():
        torch.manual_seed(0)
        sizes = np.random.default_rng(0).integers(1, largest + 1, size=count)
        data = Batch(Sets.from_list([torch.randn(int(n), width) for n in sizes]), torch.randn(count, 1))
        network = nn.DeepSet(nn.mlp(width, hidden, hidden), nn.mlp(hidden, hidden, 1), pool="mean")
        chosen = [which for epoch in range(2) for which in balanced(sizes, batch_size, seed=0, epoch=epoch)]
        ready = [data.take(which) for which in chosen]
        options = {"epochs": 2, "batch_size": batch_size, "schedule": "constant", "warmup": 0.0, "progress": False}
        options |= {"micro_elements": None}  # the bare loop does whole batches
        ways = {
            "ours": lambda n=network, d=data, o=options: train(copy.deepcopy(n), loss, d, **o),
            "bare, gathering its batches": lambda n=network, d=data, c=chosen: bare(
                copy.deepcopy(n), (d.take(which) for which in c)
            ),
            "bare, batches ready-made": lambda n=network, r=ready: bare(copy.deepcopy(n), r),
        }
        seconds = compare(ways, repeats)
        rows += [
            {
                "case": case,
                "bare loop": way,
                "ms a step, ours": 1e3 * seconds["ours"] / len(ready),
                "ms a step, bare": 1e3 * s / len(ready),
                "ours takes": seconds["ours"] / s,
            }
            for way, s in seconds.items()
            if way != "ours"
        ]
    return rows
