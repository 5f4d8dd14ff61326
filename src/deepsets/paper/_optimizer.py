"""Muon for the matrices between hidden layers, AdamW for all else: the same fit in fewer epochs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class MuonAdamW(torch.optim.Optimizer):
    """Steps of equal length in all directions of a matrix (Muon), where a matrix has many; AdamW elsewhere.

    >>> layers = [torch.nn.Linear(3, 256), torch.nn.Linear(256, 256)]
    >>> optimizer = MuonAdamW([{"params": [p for layer in layers for p in layer.parameters()]}], 1e-3)
    >>> [[tuple(p.shape) for p in group["params"]] for group in optimizer.param_groups]
    [[(256, 256)], [(256, 3), (256,), (256,)]]

    groups: of parameters, with a "weight_decay" or without. Steps of both are as long as those of AdamW at this rate.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], rate: float) -> None:
        groups = list(groups)
        self.muon = torch.optim.Muon(_some(groups, True), lr=rate, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
        self.adam = torch.optim.AdamW(_some(groups, False), lr=rate, weight_decay=0.0, fused=True)
        super().__init__([*self.muon.param_groups, *self.adam.param_groups], {})
        self._share()

    def _share(self) -> None:
        """One state and one list of groups, of which either optimizer sees its own: saved and loaded as one."""
        number = len(self.muon.param_groups)
        self.muon.state = self.adam.state = self.state
        self.muon.param_groups, self.adam.param_groups = self.param_groups[:number], self.param_groups[number:]

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.muon.step()
        self.adam.step()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()


def _some(groups: list[dict[str, Any]], inner: bool) -> list[dict[str, Any]]:
    """The groups with the matrices between hidden layers alone, or without them; empty ones are left out."""
    chosen = [group | {"params": [p for p in group["params"] if _inner(p) == inner]} for group in groups]
    return [group for group in chosen if group["params"]]


def _inner(parameter: Tensor) -> bool:
    return parameter.ndim == 2 and min(parameter.shape) >= 48
