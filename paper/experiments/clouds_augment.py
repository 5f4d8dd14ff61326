"""Clouds moved at every step of the training, so that none is seen twice: stretched and shifted, or turned."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def still(batch: Tensor, done: float) -> Tensor:
    """As they are; (B, n, 3)."""
    return batch


def fading(batch: Tensor, done: float) -> Tensor:
    """Stretched less and less, as the training goes from 0 to 1: at the end as the votes are; (B, n, 3)."""
    return stretched(batch, 1 - 0.6 * done)


def stretched(batch: Tensor, strength: float = 0.4) -> Tensor:
    """Every axis of a cloud scaled by 2/3 to 3/2 and shifted by up to 0.2, at strength 1; (B, n, 3)."""

    def up_to(most: float) -> Tensor:
        return (torch.rand(len(batch), 1, 3) * 2 - 1) * (most * strength)

    return batch * up_to(math.log(1.5)).exp() + up_to(0.2)


def turned(batch: Tensor, done: float = 0.0) -> Tensor:
    """The paper's transformations: turned about the z-axis, scaled by U(0.8, 1/0.8); (B, n, 3)."""
    angle = torch.rand(len(batch)) * 2 * torch.pi
    scale = torch.empty(len(batch)).uniform_(0.8, 1 / 0.8)
    cos, sin, zero = scale * angle.cos(), scale * angle.sin(), torch.zeros_like(angle)
    return batch @ torch.stack([cos, sin, zero, -sin, cos, zero, zero, zero, scale], dim=1).view(-1, 3, 3)
