"""Networks that the paper compares with: recurrent networks on sequences, convolutions on neighbour graphs."""

from typing import Literal

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

from deepsets.nn import MaxPooling, SetDropout, Standardize, pooling
from deepsets.sets import Sets

_CELLS = {"lstm": nn.LSTM, "gru": nn.GRU}


class Recurrent(nn.Module):
    r"""A set read member by member:  $h_m = \mathrm{cell}(φ(x_m), h_{m-1})$,  $f(X) = W h_M + b$.

    >>> from deepsets.nn import mlp
    >>> model = Recurrent("lstm", mlp(3, 16), width=16, state=32, out=1)
    >>> model(Sets.from_list([torch.randn(5, 3), torch.randn(2, 3)])).shape
    torch.Size([2, 1])

    phi maps rows, (N, in) -> (N, width); `state` is the width of h. In training the members come in a new random order
    at every step, so that no order can be memorised; otherwise in the given order. Elements that are in several sets
    (`Sets.element_ids`) go through phi once. An empty set is read as a single zero.
    """

    def __init__(self, cell: Literal["lstm", "gru"], phi: nn.Module, width: int, state: int, out: int) -> None:
        super().__init__()
        if cell not in _CELLS:
            raise ValueError(f"a recurrent network has cells 'lstm' or 'gru', found {cell!r}.")
        self.phi, self.cell, self.rho = phi, _CELLS[cell](width, state, batch_first=True), nn.Linear(state, out)

    def forward(self, sets: Sets) -> Tensor:
        """Sets with values (N, in) -> (B, out)."""
        members = sets.map(self.phi).materialize()
        if self.training:
            order = torch.argsort(members.set_ids + torch.rand(members.total, dtype=torch.float64))
            members = members.with_values(members.values[order])
        padded, _ = members.to_padded()
        if padded.shape[1] == 0:  # every set is empty
            padded = padded.new_zeros(len(sets), 1, padded.shape[2])
        sequences = pack_padded_sequence(padded, sets.sizes.clamp_min(1).cpu(), batch_first=True, enforce_sorted=False)
        _, state = self.cell(sequences)
        return self.rho((state[0] if isinstance(state, tuple) else state)[-1])


def neighbours(sets: Sets, k: int = 8, members: Tensor | None = None) -> Tensor:
    """(N, 1 + k) rows: each member, then the k others of its set that are nearest to it, the nearest first.

    >>> neighbours(Sets.from_list([[[0.0], [5.0], [1.0]], [[3.0], [4.0]]]), k=1).tolist()
    [[0, 2], [1, 2], [2, 0], [3, 4], [4, 3]]

    members: rows of some members only, set by set.
    """
    if len(sets) and int(sets.sizes.min()) <= k:
        raise ValueError(f"a member needs {k} neighbours in its set, but a set has {int(sets.sizes.min())} members.")
    members = torch.arange(sets.total) if members is None else members
    each = (members - sets.offsets[:-1][sets.set_ids[members]]).split(
        sets.set_ids[members].bincount(minlength=len(sets)).tolist()
    )
    found = [torch.zeros(0, k + 1, dtype=torch.long)]
    for start, points, rows in zip(sets.offsets.tolist(), sets.to_list(), each, strict=False):
        tree = cKDTree(points.numpy(), balanced_tree=False, compact_nodes=False)  # faster for so few
        _, near = tree.query(points[rows].numpy(), k + 1)
        itself = rows.numpy()[:, None]
        others = near != itself
        others[others.all(1), -1] = False  # so many others lie in the very same place that it is not in its own list
        found.append(torch.from_numpy(np.concatenate([itself, near[others].reshape(-1, k)], 1)) + start)
    return torch.cat(found)


class GraphConvolution(nn.Module):
    r"""The mean over a member and its neighbours, mapped:  $y_i = \frac{1}{1+k} Σ_{j ∈ \{i\} ∪ N(i)} x_j W + b$."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.map = nn.Linear(in_features, out_features)

    def forward(self, x: Tensor, near: Tensor) -> Tensor:
        """(N, in), (N, 1 + k) -> (N, out)."""
        return self.map(F.embedding_bag(near, x, mode="mean"))


class EdgeConvolution(nn.Module):
    r"""What a member is, and how its neighbours differ from it:  $y_i = x_i A + \max_{j ∈ \{i\} ∪ N(i)} (x_j − x_i) B$.

    The map of the differences runs once for each member, not for each pair: $(x_j − x_i) B = x_j B − x_i B$. With a
    monotone activation after it this is an edge convolution with one layer (Wang et al., 2019).
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.member = nn.Linear(in_features, out_features)
        self.edge = nn.Linear(in_features, out_features, bias=False)

    def forward(self, x: Tensor, near: Tensor) -> Tensor:
        """(N, in), (N, 1 + k) -> (N, out)."""
        edge = self.edge(x)
        if edge.dtype == torch.bfloat16:  # autocast: the maximum over bags of bfloat16 is slow
            edge = edge.float()
        return self.member(x) + F.embedding_bag(near, edge, mode="max") - edge


class DescribedGraphNet(nn.Module):
    """Three graph convolutions, ELU, pooling, a dense layer; half of the channels dropped after each: (N, 3) -> (B, C).

    >>> DescribedGraphNet(classes=40)(Sets.from_list([torch.randn(20, 3), torch.randn(9, 3)])).shape
    torch.Size([2, 40])
    """

    def __init__(self, classes: int, width: int = 256, k: int = 8) -> None:
        super().__init__()
        self.k, self.norm, self.drop, self.pool = k, Standardize(), SetDropout(0.5), MaxPooling()
        self.layers = nn.ModuleList(GraphConvolution(before, width) for before in (3, width, width))
        self.rho = nn.Sequential(nn.Linear(width, width), nn.ELU(), nn.Dropout(0.5), nn.Linear(width, classes))

    def forward(self, sets: Sets) -> Tensor:
        """Sets with values (N, 3) -> (B, classes)."""
        sets = self.norm(sets)
        near = neighbours(sets, self.k)
        for layer in self.layers:
            sets = self.drop(sets.with_values(F.elu(layer(sets.values, near), inplace=True)))
        return self.rho(self.pool(sets))


class EdgeNet(nn.Module):
    """Edge convolutions with batch norm, all of them joined, a wide layer, maximum and mean: (N, 3) -> (B, classes).

    >>> EdgeNet(classes=40)(Sets.from_list([torch.randn(20, 3), torch.randn(9, 3)])).shape
    torch.Size([2, 40])
    """

    def __init__(self, classes: int, width: int = 96, k: int = 8) -> None:
        super().__init__()
        self.k, self.pool = k, pooling(["max", "mean"])
        self.layers = nn.ModuleList(EdgeConvolution(before, width) for before in (3, width, width))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in self.layers)
        self.wide = nn.Sequential(nn.Linear(3 * width, 512, bias=False), nn.BatchNorm1d(512), nn.ReLU(inplace=True))
        self.rho = nn.Sequential(nn.Linear(1024, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.5))
        self.rho.append(nn.Linear(256, classes))

    def forward(self, sets: Sets) -> Tensor:
        """Sets with values (N, 3) -> (B, classes)."""
        near, x, seen = neighbours(sets, self.k), sets.values, []
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = F.relu(norm(layer(x, near)), inplace=True)
            seen.append(x)
        return self.rho(self.pool(sets.with_values(self.wide(torch.cat(seen, dim=1)))))
