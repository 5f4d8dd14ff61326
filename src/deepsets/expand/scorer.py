"""One query against all candidates, fast and in bounded memory."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..nn.sequential import linear
from .network import EncodedQueries, ScoreNetwork

BLOCK = 4096  # candidates at a time: larger blocks leave the cache, smaller ones cost calls
RESCORED = 500  # more than the wanted candidates are scored again in float32 after a pass in bfloat16


def has_bfloat16() -> bool:
    """Whether bfloat16 products are fast and safe: some virtual machines report AMX and end a process that uses it."""
    return torch.cpu._is_avx512_bf16_supported() and not torch.cpu._is_amx_tile_supported()


def _fill_up(maps: list[nn.Linear]) -> list[tuple[Tensor, Tensor]]:
    """Matrices (out, in) and biases, with zeros so that hidden layers are whole vectors of the processor wide."""
    widths = [maps[0].in_features, *(-(-layer.out_features // 16) * 16 for layer in maps[:-1]), 1]
    filled = []
    for layer, before, after in zip(maps, widths, widths[1:], strict=False):
        more = (0, before - layer.in_features, 0, after - layer.out_features)
        filled.append((F.pad(layer.weight.detach(), more), F.pad(layer.bias.detach(), more[2:])))
    return filled


class Scorer:
    r"""Keys of all candidates, $Wφ(x)$, computed once; a query then is one pass over them.

    >>> from deepsets import Sets
    >>> network = ScoreNetwork(9, 4, 0, 0, phi=(8, 8), rho=(8, 4), pool="sum", concat=False, dropout=0.0).eval()
    >>> phi = network.encode_elements(torch.arange(9), None)
    >>> scorer = Scorer(network, 9)
    >>> scorer.put(0, phi)
    >>> scorer.scores(network.encode_queries(Sets(phi[:5], torch.tensor([0, 2, 5])), None)).shape  # two queries
    (2, 9)

    What is left of ρ for each candidate is an addition, a ReLU and small matrix products. A bias a before a ReLU costs
    no pass of its own: $\mathrm{relu}(k + a) = \max(k, −a) + a$, and the last term goes through the next map once for
    all candidates, into the next bias. All queries of a batch meet a block of candidates while it is in cache, in the
    same few buffers, so memory over the keys is that of the answer.
    """

    def __init__(self, network: ScoreNetwork, count: int) -> None:
        maps = [layer for layer in network.rest if isinstance(layer, nn.Linear)]
        self.network, self.count = network, count
        self.size = min(BLOCK, -(-count // 16) * 16)  # whole vectors of the processor: equal keys tie exactly
        self.first = network.first.weight.detach()
        self.maps = _fill_up(maps)
        width = self.first.shape[1 if network.late else 0]
        self.keys = self.first.new_empty(-(-count // self.size), self.size, width)
        self.keys[-1:] = 0
        self._short: Tensor | None = None  # the keys in bfloat16

    @torch.no_grad()
    def put(self, start: int, phi: Tensor) -> None:
        """The candidates from number `start` on: (n, latent)."""
        self.keys.flatten(0, 1)[start : start + len(phi)] = self.network.keys(phi)
        self._short = None

    @torch.no_grad()
    def scores(self, asked: EncodedQueries, best: int | None = None) -> np.ndarray:
        """Score all candidates.

        Parameters
        ----------
        asked : EncodedQueries
            Q queries.
        best : int, optional
            How many of the best candidates of each query are wanted. Where the processor multiplies in bfloat16, the
            others then have approximate scores, below those; a query for which that is in doubt is scored in full.

        Returns
        -------
        ndarray of shape (Q, V)
            One row of scores per query.
        """
        wanted = -(-((best or 0) + RESCORED) // 16) * 16
        if best is None or wanted >= self.count or self.keys.dtype != torch.float32 or not has_bfloat16():
            return self._pass(asked, self.keys).numpy()
        if self._short is None:
            self._short = self.keys.bfloat16()
        out = self._pass(asked, self._short).float()
        near, rows = out.topk(wanted)
        keys = self.keys.flatten(0, 1)
        exact = torch.stack([self.network.score(asked.select([q]), keys[row]) for q, row in enumerate(rows)])
        error = (exact - near).abs().amax(1)
        doubt = exact.topk(best).values[:, -1] <= near[:, -1] + 2 * error
        out.scatter_(1, rows, exact)
        if doubt.any():
            out[doubt] = self._pass(asked.select(doubt), self.keys)
        return out.numpy()

    def _pass(self, asked: EncodedQueries, keys: Tensor) -> Tensor:
        """Scores in the precision of the keys."""
        out = keys.new_empty(len(asked.shift), len(keys) * self.size)
        shifts, ends = self._shifts(asked.shift)
        floors = [[-shift[q].to(keys.dtype) for shift in shifts] for q in range(len(out))]
        pooled = None if asked.pooled is None else asked.pooled.to(keys.dtype)
        hidden = torch.empty_like(keys[0])
        first, *maps, last = (weight.to(keys.dtype) for weight in (self.first, *(weight for weight, _ in self.maps)))
        answers = out.view(len(out), -1, self.size, 1)
        for b, block in enumerate(keys.unbind()):
            for q, (lowest, *higher) in enumerate(floors):
                before = torch.maximum(block, lowest if pooled is None else pooled[q], out=hidden)
                if pooled is not None:
                    before = linear(before, first)
                    torch.maximum(before, lowest, out=before)
                for weight, floor in zip(maps, higher, strict=True):
                    before = linear(before, weight)
                    torch.maximum(before, floor, out=before)
                torch.mm(before, last.T, out=answers[q, b])
        return out.add_(ends[:, None].to(out.dtype))[:, : self.count]

    def _shifts(self, shift: Tensor) -> tuple[list[Tensor], Tensor]:
        """What is to be added before each ReLU, (Q, width), all biases so far carried along; and to the score, (Q,)."""
        shifts = []
        for weight, bias in self.maps:
            shifts.append(shift)
            shift = F.linear(shift, weight, bias)
        return shifts, shift[:, 0]
