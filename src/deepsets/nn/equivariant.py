"""Permutation-equivariant layers (Deep Sets, Lemma 3 and appendix C)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..sets import Sets
from .kernels import Activation, add_broadcast_, extremum_with_values
from .pooling import PoolSpec, pooling
from .reductions import _Extreme
from .sequential import SetLayer

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
        if activation not in (None, "tanh", "relu", "elu"):
            raise ValueError(f"unknown activation {activation!r}; known are tanh, relu, elu.")
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
        if self.form == "channel":
            each, context = sets.map(lambda x: x * self.scale), self.context_scale * self.pool(sets)
        else:
            sets, pooled = self._pooled(sets)
            # The bias joins the context, on B rows. In the factored form pool(x)Γ is taken there instead of from
            # every member, so that the difference x − pool(x) is never stored.
            gamma = self.context.weight if self.form == "full" else self.member.weight
            each = sets.map(lambda x: F.linear(x, self.member.weight))
            context = F.linear(-pooled, gamma, self.member.bias)
        flat = each.materialize()
        return flat.with_values(add_broadcast_(flat.values, context, flat, self.activation))

    def _pooled(self, sets: Sets) -> tuple[Sets, Tensor]:
        """The sets to go on with, and their pooled vectors, (B, pooled)."""
        plain = sets.element_ids is None and sets.weights is None and not torch.compiler.is_compiling()
        if plain and isinstance(self.pool, _Extreme):
            values, pooled = extremum_with_values(sets.values, sets, self.pool.sign)
            return sets.with_values(values), pooled
        return sets, self.pool(sets)

    def extra_repr(self) -> str:
        return f"form={self.form!r}, activation={self.activation!r}"
