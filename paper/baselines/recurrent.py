"""Sets read as sequences by an LSTM or a GRU (section 4.1.2)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from deepsets.sets import Sets

_CELLS = {"lstm": nn.LSTM, "gru": nn.GRU}


class Recurrent(nn.Module):
    r"""A set read member by member:  $h_m = \mathrm{cell}(φ(x_m), h_{m-1})$,  $f(X) = W h_M + b$.

    >>> from deepsets.nn import mlp
    >>> model = Recurrent("lstm", mlp(3, 16), width=16, state=32, out=1)
    >>> model(Sets.from_list([torch.randn(5, 3), torch.randn(2, 3)])).shape
    torch.Size([2, 1])

    phi: any module on rows, (N, in) -> (N, width). state: the width of h. Values (N, in) -> (B, out).

    In training the members come in another order every time, so that no order can be learnt by heart; else in the
    order in which they are given. Elements that stand in several sets (`Sets.element_ids`) go through phi once. An empty
    set is read as a single zero.
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
