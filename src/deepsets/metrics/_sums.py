"""How often a sum is told exactly (Deep Sets, section 4.1.2)."""

from __future__ import annotations

from torch import Tensor


def exact_sums(answer: Tensor, truth: Tensor) -> float:
    """The share of answers that, rounded, are the true integer: (B,) each.

    >>> import torch
    >>> exact_sums(torch.tensor([11.6, 7.2, 3.0, 8.6]), torch.tensor([12, 7, 3, 8]))
    0.75
    """
    if answer.shape != truth.shape or answer.ndim != 1:
        raise ValueError(
            f"one answer and one sum for each set are wanted, found shapes {tuple(answer.shape)} and "
            f"{tuple(truth.shape)}."
        )
    return float((answer.round() == truth).double().mean())
