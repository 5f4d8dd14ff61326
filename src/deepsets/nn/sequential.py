"""Layers on sets, one after another."""

from __future__ import annotations

from torch import nn

from ..sets import Sets


class SetLayer(nn.Module):
    """A module from sets to sets of the same sizes. Subclass it for layers of your own; `Stack` knows by the type."""

    def forward(self, sets: Sets) -> Sets:
        """Sets with values (N, in) -> Sets with values (N, out)."""
        raise NotImplementedError


class SetSequential(SetLayer):
    """Set layers and plain modules one after another: a value for every member.

    >>> import torch
    >>> from deepsets import nn
    >>> net = nn.SetSequential(nn.Equivariant(3, 64), torch.nn.ReLU(), nn.Equivariant(64, 1))
    >>> net(Sets.from_list([torch.randn(5, 3), torch.randn(2, 3)])).values.shape
    torch.Size([7, 1])

    Plain modules (activations, linear maps) see the members as rows, (N, in) -> (N, out). A pooled answer for each
    set is `DeepSet(phi=SetSequential(...), rho)`.
    """

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, sets: Sets) -> Sets:
        for layer in self.layers:
            sets = layer(sets) if isinstance(layer, SetLayer) else sets.map(layer)
        return sets
