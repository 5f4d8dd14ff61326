"""Training by steps: every step takes some rows of the data, and makes of them whatever sets it likes."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from deepsets.train import Batch, CheckpointError, checkpoint, keep_memory
from deepsets.train.loop import Loss

Make = Callable[[Tensor, float], Batch]


def train_by_steps(
    model: nn.Module,
    loss: Loss,
    make: Make,
    count: int,
    *,
    epochs: int,
    rate: float,
    weight_decay: float = 0.0,
    pool: int = 128,
    average: float = 0.998,
    bfloat16: bool = False,
    optimizer: Callable[..., torch.optim.Optimizer] | None = None,
    seed: int,
    folder: Path,
    progress: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Trains a model in place, on what `make(rows, done)` makes of the next `pool` rows of `count`, at every step.

    `done`, from 0 to 1, is how much of the training is behind. Many sets may be drawn from one pool of elements
    (`Sets.element_ids`: phi then runs once for each), elements may be deformed or left out: whatever random numbers `make`
    and the model take from torch follow from the seed and the number of the step, so a resumed step is the step it
    would have been.

    AdamW (or `optimizer(groups, rate)`) with clipped gradients, a short warm-up and a cosine; the weights that stay
    are their moving average (`average`: how much of it is kept at a step; 0 keeps the last weights). bfloat16: matrix
    products and convolutions are done in it, weights and sums stay in float32; 1.5 to 2 times as fast where the
    processor has instructions for it. A checkpoint in `folder` is taken up where it stands; one that was made with
    other settings (the numbers given here, and what `settings` adds) is refused.
    """
    if count < pool:
        raise ValueError(f"a step takes {pool} rows of the data, found {count} in all.")
    keep_memory()
    optimize = (optimizer or partial(torch.optim.AdamW, fused=True))(_groups(model, weight_decay), rate)
    averaged = copy.deepcopy(model).requires_grad_(False)
    steps = epochs * (count // pool)
    place = folder / "checkpoint.safetensors"
    chosen = {"count": count, "epochs": epochs, "rate": rate, "weight_decay": weight_decay, "pool": pool}
    chosen |= {"average": average, "bfloat16": bfloat16, "seed": seed, **(settings or {})}
    start = _load(place, model, averaged, optimize, chosen) if place.exists() else 0
    saved = time.monotonic()
    model.train()
    with torch.random.fork_rng(devices=[]):
        for step in tqdm(range(start, steps), initial=start, total=steps, unit="step", disable=not progress):
            torch.default_generator.manual_seed(hash((seed, step)))
            done = (step + 0.5) / steps
            batch = make(_rows(count, pool, step, seed), done)
            for group in optimize.param_groups:
                group["lr"] = rate * _share(done)
            optimize.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
                total, weight = loss(model, batch)
            if not total.isfinite():
                raise ValueError(f"the loss is {total.item()} at step {step} of {steps}: try a smaller rate.")
            (total / weight).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimize.step()
            _follow(averaged, model, min(average, (1 + step) / (10 + step)))
            if time.monotonic() - saved > 30 or step == steps - 1:
                _save(place, model, averaged, optimize, {"step": step + 1, "settings": chosen})
                saved = time.monotonic()
    model.load_state_dict(averaged.state_dict())


def _rows(count: int, pool: int, step: int, seed: int) -> Tensor:
    """The rows of a step: every epoch has its order, and the last count % pool rows of it are left out."""
    epoch, place = divmod(step, count // pool)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(hash((seed, epoch))))
    return order[place * pool : (place + 1) * pool]


def _share(done: float, warmup: float = 0.1) -> float:
    """Of the full rate: up in a line, down in a cosine to nothing."""
    return done / warmup if done < warmup else 0.5 + 0.5 * math.cos(math.pi * (done - warmup) / (1 - warmup))


def _groups(model: nn.Module, weight_decay: float) -> Iterator[dict[str, object]]:
    """Matrices and kernels decay, biases and scales do not."""
    for kind, decay in ((True, weight_decay), (False, 0.0)):
        yield {"params": [p for p in model.parameters() if (p.ndim > 1) == kind], "weight_decay": decay}


@torch.no_grad()
def _follow(averaged: nn.Module, model: nn.Module, keep: float) -> None:
    """The moving average of everything that is a real number, running statistics of the batch norms with it."""
    pairs = zip(averaged.state_dict().values(), model.state_dict().values(), strict=True)
    old, new = zip(*[(a, b) for a, b in pairs if a.is_floating_point()], strict=True)
    torch._foreach_lerp_(old, new, 1 - keep)


def _save(
    place: Path, model: nn.Module, averaged: nn.Module, optimizer: torch.optim.Optimizer, facts: dict[str, Any]
) -> None:
    moments, numbers = checkpoint.optimizer_tensors(optimizer)
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"averaged.{name}": tensor for name, tensor in averaged.state_dict().items()}
    tensors |= {f"optimizer.{name}": tensor for name, tensor in moments.items()}
    checkpoint.save(place, tensors, {**facts, "optimizer": numbers})


def _load(
    place: Path,
    model: nn.Module,
    averaged: nn.Module,
    optimizer: torch.optim.Optimizer,
    chosen: dict[str, Any],
) -> int:
    """The step to go on with."""
    tensors, facts = checkpoint.load(place)
    before = facts["settings"]
    other = [
        f"{name} was {before.get(name)!r} and is {chosen.get(name)!r}"
        for name in dict.fromkeys([*before, *chosen])
        if before.get(name) != chosen.get(name)
    ]
    if other:
        raise CheckpointError(
            f"{place} belongs to a training with other settings: {', '.join(other)}. "
            "Remove it, or run without --resume, to start anew."
        )
    rooms: dict[str, dict[str, Tensor]] = {"model": {}, "averaged": {}, "optimizer": {}}
    for key, tensor in tensors.items():
        room, name = key.split(".", 1)
        rooms[room][name] = tensor
    model.load_state_dict(rooms["model"])
    averaged.load_state_dict(rooms["averaged"])
    checkpoint.restore_optimizer(optimizer, rooms["optimizer"], facts["optimizer"])
    return int(facts["step"])
