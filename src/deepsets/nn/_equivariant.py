"""Permutation-equivariant layers (Deep Sets, Lemma 3 and appendix C)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..sets import Sets
from ._pooling import PoolSpec, pooling
from ._spread import add_spread_
from ._stack import SetLayer

Form = Literal["full", "factored", "channel"]
Activation = Literal["tanh", "relu", "elu"]

_IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh_, "relu": torch.relu_, "elu": F.elu_}


class Equivariant(SetLayer):
    r"""Maps every member of a set, seeing the set as a whole:  $y_i = x_i Λ − \mathrm{pool}(x) Γ + β$.

    >>> layer = Equivariant(3, 64, pool="max")
    >>> layer(Sets.from_list([torch.randn(5, 3), torch.randn(2, 3)])).values.shape
    torch.Size([7, 64])

    Three forms, (N, in) -> (N, out):

    - ``full``:     $x_i Λ − \mathrm{pool}(x) Γ + β$, two matrices;
    - ``factored``: $(x_i − \mathrm{pool}(x)) Γ + β$, one matrix: fewer parameters, the paper's choice for point clouds;
    - ``channel``:  $λ ⊙ x_i + γ ⊙ \mathrm{pool}(x)$, two numbers a channel: Lemma 3 itself when pool is ``sum``.

    `activation`: the nonlinearity around it, $σ(…)$, done in place; None leaves the layer linear.

    The pooled term is computed once for each set, (B, in) x (in, out), and added to its members: the cost over a
    plain linear layer is one pass over the input and one over the output.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        pool: PoolSpec = "max",
        form: Form = "full",
        activation: Activation | None = None,
    ) -> None:
        super().__init__()
        if activation is not None and activation not in _IN_PLACE:
            raise ValueError(f"unknown activation {activation!r}; known are {', '.join(_IN_PLACE)}.")
        self.form, self.activation = form, activation
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
            each, context = sets.map(lambda x: x * self.scale), self.context_scale * pooled
        elif self.form == "full":
            each, context = sets.map(self.member), -self.context(pooled)
        else:  # pool(x)Γ on B rows instead of (x − pool(x))Γ: the difference is never stored
            each, context = sets.map(self.member), -F.linear(pooled, self.member.weight)
        flat = each.members()
        out = add_spread_(flat.values, context, flat)
        return flat.with_values(out if self.activation is None else _IN_PLACE[self.activation](out))

    def extra_repr(self) -> str:
        return f"form={self.form!r}, activation={self.activation!r}"
