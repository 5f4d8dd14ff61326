"""Set expansion: a query against all candidates, against the plain forward pass and the products it cannot avoid."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import scipy.sparse as sp
import torch

from deepsets import Sets
from deepsets.expand import BayesianSets
from deepsets.expand.network import ScoreNetwork
from deepsets.expand.scorer import Scorer

from .clock import compare

# Keys of the candidates are made in place, without phi: only their number matters to memory and time.
LARGE = """
import json, re, sys, time, torch
from deepsets import Sets
from deepsets.expand.network import ScoreNetwork
from deepsets.expand.scorer import Scorer
torch.set_num_threads(1)
peak = lambda: int(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1]) / 2**20
network = ScoreNetwork(8, 50, 0, 0, phi=(150, 150), rho=(150, 75), pool="sum", concat=False).eval()
asked = network.encode_queries(Sets(torch.rand(5, 150), torch.tensor([0, 5])), None)
scorer = Scorer(network, int(sys.argv[1]))
for block in scorer.keys:
    block.uniform_(-1, 1)
before = peak()
start = time.perf_counter()
scores = scorer.scores(asked)
print(json.dumps([peak() - before, time.perf_counter() - start, len(scores[0])]))
"""


@torch.no_grad()
def learned(count: int = 61_127) -> list[dict[str, object]]:
    """One query of five words, the sizes of appendix E."""
    torch.manual_seed(0)
    network = ScoreNetwork(count, 50, 0, 0, phi=(150, 150), rho=(150, 75), pool="sum", concat=False).eval()
    ids = torch.arange(count)
    phi = network.encode_elements(ids, None)
    scorer = Scorer(network, count)
    scorer.put(0, phi)
    keys, weight, space = network.keys(phi), network.rest[1].weight.T.contiguous(), torch.empty(count, 75)

    def plain() -> torch.Tensor:
        pooled = network.encode_elements(ids[:5], None).sum(0)
        return network.rest(network.first(pooled + network.encode_elements(ids, None)))

    ways = {
        "scorer": lambda: scorer.scores(
            network.encode_queries(Sets(network.encode_elements(ids[:5], None), torch.tensor([0, 5])), None)
        ),
        "plain forward pass": plain,
        "the one matrix product": lambda: torch.mm(keys, weight, out=space),
    }
    np.testing.assert_allclose(ways["scorer"]()[0], plain()[:, 0].numpy(), rtol=1e-3, atol=1e-4)
    return _rows(f"one query, {count:,} candidates", compare(ways), "scorer")


def bayesian(items: int = 1_000_000, features: int = 10_000, each: int = 10) -> list[dict[str, object]]:
    """One query of five items with sparse features, against one product of scipy with the same matrix."""
    rng = np.random.default_rng(0)
    where = np.repeat(np.arange(items), each), rng.integers(features, size=items * each)
    table = sp.csr_array((np.ones(items * each, dtype=np.float32), where), shape=(items, features))
    table.data[:] = 1
    expander = BayesianSets("beta").fit(items=table)
    query = np.arange(5)
    weights = rng.random(features).astype(np.float32)
    ways = {"BayesianSets": lambda: expander.score(query), "one sparse product": lambda: expander.table_ @ weights}
    return _rows(f"Bayesian Sets, {items:,} items x {features:,} features, {each} each", compare(ways), "BayesianSets")


def large() -> list[dict[str, object]]:
    """Memory over the keys, and time against the number of candidates."""
    out: list[dict[str, object]] = []
    for count in (1_000_000, 10_000_000):
        done = subprocess.run([sys.executable, "-c", LARGE, str(count)], check=True, capture_output=True, text=True)
        gigabytes, seconds, _ = json.loads(done.stdout)
        row = {"case": f"one query, {count:,} candidates, 150 numbers each", "GB over the keys": gigabytes}
        out.append({**row, "seconds": seconds, "ns for a candidate": 1e9 * seconds / count})
    return out


def _rows(case: str, seconds: dict[str, float], ours: str) -> list[dict[str, object]]:
    return [{"case": case, "way": n, "ms": 1e3 * s, "ours takes": seconds[ours] / s} for n, s in seconds.items()]


def run() -> list[dict[str, object]]:
    """One thread: what a server has for one query."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [*learned(), *bayesian(), *large()]
    finally:
        torch.set_num_threads(threads)
