"""The learned expander's scorer: a query over 61,127 candidates beside its one matrix product; 64 queries at once."""

from __future__ import annotations

from collections.abc import Callable

import torch

from deepsets import Sets
from deepsets.expand.network import ScoreNetwork
from deepsets.expand.scorer import Scorer

from .clock import versus

CANDIDATES, QUERIES = 61_127, 64


@torch.no_grad()
def run() -> list[dict[str, object]]:
    """One query, and a batch of queries against one at a time."""
    torch.manual_seed(0)
    network = ScoreNetwork(
        CANDIDATES, 50, 0, 0, phi=(150, 150), rho=(150, 75), pool="sum", concat=False, dropout=0.0
    ).eval()  # fmt: skip
    phi = network.encode_elements(torch.arange(CANDIDATES), None)
    scorer = Scorer(network, CANDIDATES)
    scorer.put(0, phi)
    asked = network.encode_queries(Sets(phi[: 5 * QUERIES], torch.arange(0, 5 * QUERIES + 1, 5)), None)
    one, keys, weight = asked.select(slice(0, 1)), network.keys(phi), torch.randn(150, 75)
    out = torch.empty(CANDIDATES, 75)
    ways: dict[str, Callable[[], object]] = {"deepsets": lambda: scorer.scores(one)}
    ways["its matrix product alone"] = lambda: torch.mm(keys, weight, out=out)
    rows = versus(f"scorer, one query, {CANDIDATES} candidates", ways, repeats=31)

    def each(best: int | None) -> None:
        for q in range(QUERIES):
            scorer.scores(asked.select(slice(q, q + 1)), best)

    ways = {"deepsets": lambda: scorer.scores(asked), "best 100 exact": lambda: scorer.scores(asked, 100)}
    ways |= {"one query at a time": lambda: each(None), "one at a time, best 100 exact": lambda: each(100)}
    return rows + versus(f"scorer, {QUERIES} queries, {CANDIDATES} candidates", ways, repeats=5, warmup=1)
