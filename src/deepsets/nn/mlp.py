"""The plain network for phi and rho."""

from __future__ import annotations

import inspect
from itertools import pairwise

from torch import nn


def mlp(*widths: int, activation: type[nn.Module] = nn.ReLU, dropout: float = 0.0) -> nn.Sequential:
    """Linear maps with an activation between them, none after the last.

    >>> mlp(3, 64, 10)
    Sequential(
      (0): Linear(in_features=3, out_features=64, bias=True)
      (1): ReLU(inplace=True)
      (2): Linear(in_features=64, out_features=10, bias=True)
    )
    """
    if len(widths) < 2:
        raise ValueError(f"a network needs the width of its input and of its output, found {list(widths)}.")
    # In place where the activation can: the output of a linear map is nobody else's, and fresh memory is slow.
    options = {"inplace": True} if "inplace" in inspect.signature(activation).parameters else {}
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), activation(**options), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*layers[: -2 if dropout else -1])
