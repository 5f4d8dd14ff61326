"""Permutation-equivariant layers (Deep Sets, Lemma 3 and appendix C)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from ..sets import Sets
from ._pooling import PoolSpec, pooling
from ._spread import add_spread
from ._stack import SetLayer

Form = Literal["full", "factored", "channel"]


class Equivariant(SetLayer):
    r"""Maps every member of a set, seeing the set as a whole:  $y_i = x_i Λ − \mathrm{pool}(x) Γ + β$.

    >>> layer = Equivariant(3, 64, pool="max")
    >>> layer(Sets.from_list([torch.randn(5, 3), torch.randn(2, 3)])).values.shape
    torch.Size([7, 64])

    Three forms, (N, in) -> (N, out):

    - ``full``:     $x_i Λ − \mathrm{pool}(x) Γ + β$, two matrices;
    - ``factored``: $(x_i − \mathrm{pool}(x)) Γ + β$, one matrix: fewer parameters, the paper's choice for point clouds;
    - ``channel``:  $λ ⊙ x_i + γ ⊙ \mathrm{pool}(x)$, two numbers a channel: Lemma 3 itself when pool is ``sum``.

    The pooled term is computed once for each set, (B, in) x (in, out), and added to its members: the cost over a
    plain linear layer is one pass over the input and one over the output.
    """

    def __init__(self, in_features: int, out_features: int, pool: PoolSpec = "max", form: Form = "full") -> None:
        super().__init__()
        self.form = form
        self.pool = pooling(pool, in_features)
        pooled = self.pool.out_features(in_features)
        if form == "full":
            self.member = nn.Linear(in_features, out_features)
            self.context = nn.Linear(pooled, out_features, bias=False)
        elif form == "factored":
            self._same_width(in_features, pooled, "is taken from the members, so it must have their width")
            self.member = nn.Linear(in_features, out_features)
        elif form == "channel":
            self._same_width(in_features, pooled, "is added to the members, so it must have their width")
            if in_features != out_features:
                raise ValueError(
                    f"the channel form keeps the width, found in_features={in_features} and "
                    f"out_features={out_features}; use form='full' to change it."
                )
            self.scale = nn.Parameter(torch.ones(in_features))
            self.context_scale = nn.Parameter(torch.zeros(in_features))
        else:
            raise ValueError(f"unknown form {form!r}; known are full, factored, channel.")

    @staticmethod
    def _same_width(in_features: int, pooled: int, why: str) -> None:
        if pooled != in_features:
            raise ValueError(f"the pooled vector {why} {in_features}; this pooling gives {pooled}.")

    def forward(self, sets: Sets) -> Sets:
        pooled = self.pool(sets)
        if self.form == "channel":
            each, context = sets.values * self.scale, self.context_scale * pooled
        elif self.form == "full":
            each, context = self.member(sets.values), -self.context(pooled)
        else:  # pool(x)Γ on B rows instead of (x − pool(x))Γ: the difference is never stored
            each, context = self.member(sets.values), -F.linear(pooled, self.member.weight)
        flat = sets.with_values(each).members()
        return flat.with_values(add_spread(flat.values, context, flat))

    def extra_repr(self) -> str:
        return f"form={self.form!r}"
