"""The plain network for phi and rho."""

from __future__ import annotations

from itertools import pairwise

from torch import nn


def mlp(*widths: int, activation: type[nn.Module] = nn.ReLU, dropout: float = 0.0) -> nn.Sequential:
    """Linear maps with an activation between them, none after the last.

    >>> mlp(3, 64, 10)
    Sequential(
      (0): Linear(in_features=3, out_features=64, bias=True)
      (1): ReLU()
      (2): Linear(in_features=64, out_features=10, bias=True)
    )
    """
    if len(widths) < 2:
        raise ValueError(f"a network needs the width of its input and of its output, found {list(widths)}.")
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), activation(), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*layers[: -2 if dropout else -1])
