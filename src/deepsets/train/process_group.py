"""Several processes that train one model (torchrun): who am I, and how gradients come together."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn


class Workers(NamedTuple):
    """The number of this process, and how many there are."""

    rank: int
    world: int


def workers() -> Workers:
    """Joins the group that torchrun describes in the environment; alone if there is none."""
    if not dist.is_available() or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Workers(0, 1)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return Workers(dist.get_rank(), dist.get_world_size())


def share_start(model: nn.Module, world: int) -> None:
    """All processes start from the weights of the first."""
    if world > 1:
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, 0)


def sum_gradients(parameters: Iterable[nn.Parameter], summed: float, number: float, world: int) -> tuple[float, float]:
    """Adds up gradients, losses and their number over all processes, in one message.

    Every process brings the gradient of the *sum* of its losses, so that dividing by the global number of losses
    afterwards gives exactly what one process with the whole batch would have, however uneven the parts.
    """
    if world == 1:
        return summed, number
    parameters = [p for p in parameters if p.requires_grad]
    used = torch.tensor([p.grad is not None for p in parameters])
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    every = [*parts, used, torch.tensor([summed, number], dtype=torch.float64)]
    flat = torch.cat([part.reshape(-1).to(parts[0].device, torch.float64) for part in every])
    dist.all_reduce(flat)
    *grads, users, totals = flat.split([part.numel() for part in every])
    for p, part, grad, used_by in zip(parameters, parts, grads, users.tolist(), strict=True):
        # What no process used has no gradient, as with one process: a zero would let the optimizer decay the weight.
        p.grad = part.copy_(grad.reshape(part.shape)) if used_by else None
    return float(totals[0]), float(totals[1])
