"""Training on sets that share their images: a pool is deformed and encoded once, and many sets are drawn from it."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from ..datasets.digits import deform, draw, sums
from ..train import Batch, keep_memory
from ..train import _checkpoint as checkpoint
from ..train._loop import Loss


def train_on_pools(
    model: nn.Module,
    loss: Loss,
    images: Tensor,
    digits: Tensor,
    *,
    epochs: int,
    rate: float,
    weight_decay: float = 0.0,
    pool: int = 128,
    sets: int = 256,
    amount: float = 1.0,
    average: float = 0.998,
    seed: int,
    folder: Path,
    progress: bool = False,
) -> None:
    """Trains a model of sets of images, (U, H, W) bytes, to tell sums of their digits, (U,), in place.

    At every step the next `pool` images are deformed (by `amount`), and so many `sets` of 1 to 10 of them are drawn.
    A set is a `Sets` with an `index` into the pool, so phi runs once for each image, not once for each of the five
    places or more in which it stands: a step costs a tenth of what it would cost with an image for every place.

    The loss sees the sets and their sums, never a digit. AdamW with clipped gradients, a short warm-up and a cosine;
    the weights that stay are their moving average (`average`: how much of it is kept at a step). A checkpoint in
    `folder` is taken up again where it stands.
    """
    keep_memory()
    optimizer = torch.optim.AdamW(_groups(model, weight_decay), rate, fused=True)
    averaged = copy.deepcopy(model).requires_grad_(False)
    steps = epochs * (len(images) // pool)
    place = folder / "checkpoint.safetensors"
    start = _load(place, model, averaged, optimizer) if place.exists() else 0
    saved = time.monotonic()
    model.train()
    with torch.random.fork_rng(devices=[]):
        for step in tqdm(range(start, steps), initial=start, total=steps, unit="step", disable=not progress):
            # What is random in a step follows from its number, so a resumed step is the step it would have been.
            torch.default_generator.manual_seed(hash((seed, step)))
            rows = _rows(len(images), pool, step, seed)
            batch = draw(deform(images[rows].float() / 255, amount), sets, (1, 10))
            for group in optimizer.param_groups:
                group["lr"] = rate * _share((step + 0.5) / steps)
            optimizer.zero_grad()
            total, count = loss(model, Batch(batch, sums(batch, digits[rows])))
            (total / count).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            _follow(averaged, model, min(average, (1 + step) / (10 + step)))
            if time.monotonic() - saved > 30 or step == steps - 1:
                _save(place, model, averaged, optimizer, step + 1)
                saved = time.monotonic()
    model.load_state_dict(averaged.state_dict())


def _rows(count: int, pool: int, step: int, seed: int) -> Tensor:
    """Which images make the pool of a step: every epoch has its order, in which each image comes once."""
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


def _save(place: Path, model: nn.Module, averaged: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    moments, numbers = checkpoint.optimizer_tensors(optimizer)
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"averaged.{name}": tensor for name, tensor in averaged.state_dict().items()}
    tensors |= {f"optimizer.{name}": tensor for name, tensor in moments.items()}
    checkpoint.save(place, tensors, {"step": step, "optimizer": numbers})


def _load(place: Path, model: nn.Module, averaged: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    tensors, facts = checkpoint.load(place)
    rooms: dict[str, dict[str, Tensor]] = {"model": {}, "averaged": {}, "optimizer": {}}
    for key, tensor in tensors.items():
        room, name = key.split(".", 1)
        rooms[room][name] = tensor
    model.load_state_dict(rooms["model"])
    averaged.load_state_dict(rooms["averaged"])
    checkpoint.restore_optimizer(optimizer, rooms["optimizer"], facts["optimizer"])
    return int(facts["step"])
