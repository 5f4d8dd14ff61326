"""Poolings by attention: members are weighted by a learned score, softmax over each set."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn

from ..sets import Sets
from .kernels import segment_softmax
from .pooling import Parts, Pooling, named
from .reductions import merged_peak, shift
from .sequential import Factory, Linear, reset_children


class _SoftmaxPooling(Pooling):
    """Sums of values weighted by the exponential of scores, kept relative to the largest score, so that they merge."""

    part_names = ("peak", "exp", "sum")

    def scored(self, sets: Sets) -> tuple[Tensor, Tensor]:
        """Return the scores (N, H) and the values (N, H or 1, D) of the members."""
        raise NotImplementedError

    def output(self, mean: Tensor) -> Tensor:
        """Compute the pooled vectors from the weighted means, (B, H, D), which are 0 for an empty set."""
        raise NotImplementedError

    def forward(self, sets: Sets) -> Tensor:
        """Pool sets with values (N, features) to vectors (B, out)."""
        sets = sets.materialize()
        return self.output(segment_softmax(*self.scored(sets), sets, sets.weights)[2])

    def state(self, sets: Sets, dtype: torch.dtype | None = None) -> Parts:
        sets = sets.materialize()
        scores, values = self.scored(sets)
        if dtype is not None:
            scores, values = scores.to(dtype), values.to(dtype)
        peak, total, mean = segment_softmax(scores, values, sets, sets.weights)
        return {"peak": peak, "exp": total, "sum": mean * total[..., None]}

    def finish(self, parts: Parts) -> Tensor:
        """Compute the pooled vectors, (B, out), from a state."""
        total = parts["exp"][..., None]
        return self.output(torch.where(total > 0, parts["sum"] / torch.where(total > 0, total, 1), 0))

    def merge(self, a: Parts, b: Parts) -> Parts:
        peak = merged_peak(a, b)
        left, right = shift(a, peak), shift(b, peak)
        return {
            "peak": peak,
            "exp": a["exp"] * left + b["exp"] * right,
            "sum": a["sum"] * left[..., None] + b["sum"] * right[..., None],
        }


@named("gated", needs_width=True)
class GatedAttentionPooling(_SoftmaxPooling):
    r"""Gated attention of ABMIL, $\sum_i a_i x_i,\; a = \mathrm{softmax}_i\, w^\top(\tanh(V x_i) \odot \sigma(U x_i))$.

    From Ilse et al. (2018). The weight of a member multiplies its share. 0 for an empty set.

    Parameters
    ----------
    features, hidden : int
        Size of each member, and rows of V and U (64).

    Shape
    -----
    Sets with values (N, features) -> (B, features).

    Examples
    --------
    >>> GatedAttentionPooling(8)(Sets.from_list([torch.randn(5, 8), torch.randn(2, 8)])).shape
    torch.Size([2, 8])
    """

    def __init__(self, features: int, hidden: int = 64, **factory: Unpack[Factory]) -> None:
        super().__init__()
        self.content = Linear(features, hidden, **factory)
        self.gate = Linear(features, hidden, **factory)
        self.score = Linear(hidden, 1, bias=False, **factory)

    def scored(self, sets: Sets) -> tuple[Tensor, Tensor]:
        """Return the scores (N, 1) and the values (N, 1, features) of the members."""
        x = sets.values
        return self.score(self.content(x).tanh() * self.gate(x).sigmoid()), x[:, None]

    def output(self, mean: Tensor) -> Tensor:
        """Return the weighted means, (B, features)."""
        return mean.flatten(1)

    def extra_repr(self) -> str:
        """Describe the pooling in its `repr`."""
        return f"features={self.content.in_features}, hidden={self.content.out_features}"


@named("seeds", needs_width=True)
class SeedAttentionPooling(_SoftmaxPooling):
    r"""Pooling by multi-head attention from learned seeds: PMA of the Set Transformer (Lee et al., 2019).

    With $H = S + \mathrm{attend}(S, X)$ the output is $H + \mathrm{ff}(\mathrm{norm}(H))$. The seeds do not depend on
    the set, so the state merges. For an empty set the attention gives 0.

    Parameters
    ----------
    features : int
        Size of each member.
    num_seeds : int, default=1
        Number of seed vectors k.
    num_heads : int, default=4
        Number of heads; a divisor of `features`.

    Shape
    -----
    Sets with values (N, features) -> (B, num_seeds * features).

    Examples
    --------
    >>> SeedAttentionPooling(8, num_seeds=2, num_heads=4)(Sets.from_list([torch.randn(5, 8), torch.randn(2, 8)])).shape
    torch.Size([2, 16])
    """

    def __init__(self, features: int, num_seeds: int = 1, num_heads: int = 4, **factory: Unpack[Factory]) -> None:
        super().__init__()
        check_heads(features, num_heads)
        self.num_seeds, self.num_heads, self.features = num_seeds, num_heads, features
        self.query = nn.Parameter(torch.empty(num_seeds, features, **factory))
        self._reset_query()
        self.key_value = Linear(features, 2 * features, **factory)
        self.out = Linear(features, features, **factory)
        self.norm = nn.LayerNorm(features, **factory)
        self.feedforward = nn.Sequential(
            Linear(features, 2 * features, **factory), nn.GELU(), Linear(2 * features, features, **factory)
        )

    @torch.no_grad()
    def _reset_query(self) -> None:
        self.query.normal_().div_(self.features**0.5)

    def reset_parameters(self) -> None:
        """Initialise all parameters again."""
        self._reset_query()
        reset_children(self)

    def scored(self, sets: Sets) -> tuple[Tensor, Tensor]:
        """Return the scores (N, num_seeds * num_heads) and the values (N, num_heads, features / num_heads)."""
        each = self.features // self.num_heads
        keys, values = self.key_value(sets.values).reshape(sets.total, 2, self.num_heads, each).unbind(1)
        query = self.query.reshape(self.num_seeds, self.num_heads, each).to(keys.dtype)
        # Plain products of matrices, head by head: einsum and bmm fix N in an exported program, or crash in
        # onnxruntime when N is 0.
        scores = torch.stack([keys[:, h] @ query[:, h].T for h in range(self.num_heads)], dim=-1)  # (N, k, H)
        return scores.flatten(1) / each**0.5, values  # head h of every seed reads values h

    def output(self, mean: Tensor) -> Tensor:
        """Add seeds and feed-forward network, (B, num_seeds * features)."""
        mixed = mean.reshape(-1, self.num_seeds, self.features)
        h = self.query + self.out(mixed.to(self.query.dtype))
        return (h + self.feedforward(self.norm(h))).flatten(1)

    def out_features(self, in_features: int) -> int:
        """Return the width of the pooled vector for members of this width."""
        return self.num_seeds * in_features

    def extra_repr(self) -> str:
        """Describe the pooling in its `repr`."""
        return f"features={self.features}, num_seeds={self.num_seeds}, num_heads={self.num_heads}"


def check_heads(features: int, num_heads: int) -> None:
    """Raise a ValueError unless the heads can share the features evenly."""
    if num_heads < 1 or features % num_heads:
        raise ValueError(f"num_heads must divide features, found {features} features and {num_heads} heads.")
