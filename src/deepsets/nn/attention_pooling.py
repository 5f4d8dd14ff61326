"""Poolings by attention: the members are weighed by a learned score, softmax over each set."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..sets import Sets
from .kernels import segment_softmax_sum
from .pooling import Pooling, named
from .reductions import merged_peak, shift
from .state import Parts


class _SoftmaxPooling(Pooling):
    """Sums of values weighed by the exponential of scores, kept relative to the largest score: these merge."""

    def scored(self, sets: Sets) -> tuple[Tensor, Tensor]:
        """The scores (N, H) and the values (N, H, D) of the members."""
        raise NotImplementedError

    def state(self, sets: Sets) -> Parts:
        sets = sets.materialize()
        scores, values = self.scored(sets)
        peak, total, sums = segment_softmax_sum(scores, values, sets, sets.weights)
        return {"peak": peak, "exp": total, "sum": sums}

    def attended(self, parts: Parts) -> Tensor:
        """(B, H, D): the weighted means; 0 for an empty set."""
        some = (parts["exp"] > 0)[..., None]
        return torch.where(some, parts["sum"] / torch.where(some, parts["exp"][..., None], 1), 0)

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
    r"""$\sum_i a_i x_i,\; a = \mathrm{softmax}_i\, w^\top(\tanh(V x_i) \odot \sigma(U x_i))$ (Ilse et al., 2018).

    >>> GatedAttentionPooling(8)(Sets.from_list([torch.randn(5, 8), torch.randn(2, 8)])).shape
    torch.Size([2, 8])

    A member's weight multiplies its share. 0 for an empty set.
    """

    def __init__(self, features: int, hidden: int = 64) -> None:
        super().__init__()
        self.content = nn.Linear(features, hidden)
        self.gate = nn.Linear(features, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)

    def scored(self, sets: Sets) -> tuple[Tensor, Tensor]:
        x = sets.values
        return self.score(self.content(x).tanh() * self.gate(x).sigmoid()), x[:, None]

    def finish(self, parts: Parts) -> Tensor:
        return self.attended(parts).flatten(1)


@named("seeds", needs_width=True)
class SeedAttentionPooling(_SoftmaxPooling):
    r"""Multi-head attention from k learned seeds (PMA, Lee et al., 2019):  (N, D) -> (B, k * D).

    >>> SeedAttentionPooling(8, num_seeds=2, num_heads=4)(Sets.from_list([torch.randn(5, 8), torch.randn(2, 8)])).shape
    torch.Size([2, 16])

    With $H = S + \mathrm{attend}(S, X)$ the answer is $H + \mathrm{ff}(H)$. The seeds do not depend on the set, so
    the state merges. An empty set is attended to as 0.
    """

    def __init__(self, features: int, num_seeds: int = 1, num_heads: int = 4) -> None:
        super().__init__()
        if features % num_heads:
            raise ValueError(
                f"{features} features cannot be shared by {num_heads} heads: {features} % {num_heads} != 0."
            )
        self.num_seeds, self.num_heads, self.features = num_seeds, num_heads, features
        self.query = nn.Parameter(torch.randn(num_seeds, features) / features**0.5)
        self.key_value = nn.Linear(features, 2 * features)
        self.out = nn.Linear(features, features)
        self.norm = nn.LayerNorm(features)
        self.forth = nn.Sequential(nn.Linear(features, 2 * features), nn.GELU(), nn.Linear(2 * features, features))

    def scored(self, sets: Sets) -> tuple[Tensor, Tensor]:
        each = self.features // self.num_heads
        keys, values = self.key_value(sets.values).reshape(sets.total, 2, self.num_heads, each).unbind(1)
        query = self.query.reshape(self.num_seeds, self.num_heads, each).to(keys.dtype)
        # Plain products of matrices, head by head: einsum and bmm close N in an exported program, or crash in
        # onnxruntime when N is 0.
        scores = torch.stack([keys[:, h] @ query[:, h].T for h in range(self.num_heads)], dim=-1)  # (N, k, H)
        return scores.flatten(1) / each**0.5, values  # head h of every seed reads values h

    def finish(self, parts: Parts) -> Tensor:
        mixed = self.attended(parts).reshape(-1, self.num_seeds, self.features)
        h = self.query + self.out(mixed)
        return (h + self.forth(self.norm(h))).flatten(1)

    def out_features(self, in_features: int) -> int:
        return self.num_seeds * in_features
