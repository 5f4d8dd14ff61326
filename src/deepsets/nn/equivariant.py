"""Permutation-equivariant layers (Deep Sets, Lemma 3 and appendix C), and the residual block made of them."""

from __future__ import annotations

from typing import Literal, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..sets import Sets
from .kernels import Activation, add_broadcast_, extremum_with_values
from .norm import SetDropout, SetNorm
from .pooling import PoolSpec, pooling
from .reductions import _Extreme
from .sequential import Factory, Linear, SetLayer, linear, reset_children

Form = Literal["full", "factored", "channel"]


class Equivariant(SetLayer):
    r"""Permutation-equivariant linear layer, $y_i = x_i Λ − \mathrm{pool}(x) Γ + β$.

    The pooled term is computed once for each set and added to its members, so the cost over a plain linear layer is one
    pass over the input and one over the output.

    Parameters
    ----------
    in_features, out_features : int
        Size of each member before and after the layer.
    pool : str, Pooling or sequence of them, default="max"
        How the members of a set are summarised; see :func:`pooling`.
    form : {"full", "factored", "channel"}, default="full"
        - "full": $x_i Λ − \mathrm{pool}(x) Γ + β$, two matrices;
        - "factored": $(x_i − \mathrm{pool}(x)) Γ + β$, one matrix: the paper's choice for point clouds;
        - "channel": $λ ⊙ x_i + γ ⊙ \mathrm{pool}(x)$, two numbers per channel: Lemma 3 itself when pool is "sum".
    activation : {"tanh", "relu", "elu"}, optional
        Nonlinearity of the output, applied in place; None leaves the layer linear.

    Shape
    -----
    Sets with values (N, in_features) -> Sets with values (N, out_features).

    Examples
    --------
    >>> layer = Equivariant(3, 64, pool="max")
    >>> layer(Sets.from_list([torch.randn(5, 3), torch.randn(2, 3)])).values.shape
    torch.Size([7, 64])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        pool: PoolSpec = "max",
        form: Form = "full",
        activation: Activation | None = None,
        **factory: Unpack[Factory],
    ) -> None:
        super().__init__()
        if activation not in (None, "tanh", "relu", "elu"):
            raise ValueError(f"unknown activation {activation!r}; known are tanh, relu, elu.")
        self.in_features, self.out_features = in_features, out_features
        self.form, self.activation = form, activation
        self.pool = pooling(pool, in_features, **factory)
        pooled = self.pool.out_features(in_features)
        if form not in ("full", "factored", "channel"):
            raise ValueError(f"unknown form {form!r}; known are full, factored, channel.")
        if form != "full" and pooled != in_features:
            why = "is subtracted from" if form == "factored" else "is added to"
            raise ValueError(
                f"the pooled vector {why} the members, so it must have their width {in_features}; this pooling gives "
                f"{pooled}."
            )
        if form == "channel":
            if in_features != out_features:
                raise ValueError(
                    f"the channel form keeps the width, found in_features={in_features} and "
                    f"out_features={out_features}; use form='full' to change it."
                )
            self.scale = nn.Parameter(torch.ones(in_features, **factory))
            self.context_scale = nn.Parameter(torch.zeros(in_features, **factory))
        else:
            self.member = Linear(in_features, out_features, **factory)
            if form == "full":
                self.context = Linear(pooled, out_features, bias=False, **factory)

    def reset_parameters(self) -> None:
        """Initialise all parameters again."""
        reset_children(self)
        if self.form == "channel":
            nn.init.ones_(self.scale)
            nn.init.zeros_(self.context_scale)

    def forward(self, sets: Sets) -> Sets:
        """Map sets with values (N, in_features) to sets with values (N, out_features)."""
        if self.form == "channel":
            each, context = sets.map(lambda x: x * self.scale), self.context_scale * self.pool(sets)
        else:
            sets, pooled = self._pooled(sets)
            # The bias joins the context, on B rows. In the factored form pool(x)Γ is subtracted there instead of from
            # every member, so that the difference x − pool(x) is never stored.
            gamma = self.context.weight if self.form == "full" else self.member.weight
            each = sets.map(lambda x: linear(x, self.member.weight))
            context = F.linear(-pooled, gamma, self.member.bias)
        flat = each.materialize()
        return flat.with_values(add_broadcast_(flat.values, context, flat, self.activation))

    def _pooled(self, sets: Sets) -> tuple[Sets, Tensor]:
        """Sets to continue with, and their pooled vectors, (B, pooled)."""
        plain = sets.element_ids is None and sets.weights is None and not torch.compiler.is_compiling()
        if plain and isinstance(self.pool, _Extreme):
            values, pooled = extremum_with_values(sets.values, sets, self.pool.sign)
            return sets.with_values(values), pooled
        return sets, self.pool(sets)

    def extra_repr(self) -> str:
        """Describe the layer in its `repr`."""
        shape = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{shape}, form={self.form!r}, activation={self.activation!r}"


class EquivariantBlock(SetLayer):
    r"""Pre-norm residual equivariant block, $x + W\,σ(\mathrm{equivariant}(\mathrm{norm}(x)))$.

    Nothing normalises the path from input to output, so deep stacks train. The last linear map starts at 0: a new block
    is the identity.

    Parameters
    ----------
    features : int
        Size of each member.
    pool : str, Pooling or sequence of them, default=("max", "mean")
        How the members of a set are summarised; see :func:`pooling`.
    dropout : float, default=0.0
        Probability of dropping a channel; see :class:`SetDropout`.

    Shape
    -----
    Sets with values (N, features) -> Sets with values (N, features).

    Examples
    --------
    >>> EquivariantBlock(32)(Sets.from_list([torch.randn(5, 32)])).values.shape
    torch.Size([5, 32])
    """

    def __init__(
        self, features: int, pool: PoolSpec = ("max", "mean"), dropout: float = 0.0, **factory: Unpack[Factory]
    ) -> None:
        super().__init__()
        self.features = features
        self.norm = SetNorm(features, **factory)
        self.mix = Equivariant(features, features, pool=pool, **factory)
        self.activation = nn.GELU()
        self.dropout = SetDropout(dropout)
        self.out = Linear(features, features, **factory)
        self._zero_out()

    def reset_parameters(self) -> None:
        """Initialise all parameters again; the block becomes the identity."""
        reset_children(self)
        self._zero_out()

    def _zero_out(self) -> None:
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, sets: Sets) -> Sets:
        """Map sets with values (N, features) to sets with values (N, features)."""
        sets = sets.materialize()
        inner = self.dropout(self.mix(self.norm(sets)).map(self.activation))
        return sets.with_values(sets.values + self.out(inner.values))

    def extra_repr(self) -> str:
        """Describe the block in its `repr`."""
        return f"features={self.features}"
