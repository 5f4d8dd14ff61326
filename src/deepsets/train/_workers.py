"""Several processes that train one model (torchrun): who am I, and how gradients come together."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn


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


def sum_gradients(parameters: Iterable[nn.Parameter], totals: Tensor, world: int) -> None:
    """Adds up gradients and `totals` over all processes, in one message.

    Every process brings the gradient of the *sum* of its losses, so that dividing by the global number of losses
    afterwards gives exactly what one process with the whole batch would have, however uneven the parts.
    """
    if world == 1:
        return
    parameters = [p for p in parameters if p.requires_grad]
    for p in parameters:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    parts = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([*(g.reshape(-1).to(torch.float64) for g in parts), totals.reshape(-1).to(torch.float64)])
    dist.all_reduce(flat)
    *grads, total = flat.split([*(g.numel() for g in parts), totals.numel()])
    for grad, summed in zip(parts, grads, strict=True):
        grad.copy_(summed.reshape(grad.shape))
    totals.copy_(total.reshape(totals.shape))
