"""Peak memory of a forward pass against the number of elements and the size of the largest set."""

from __future__ import annotations

import json
import subprocess
import sys

CODE = """
import json, re, sys, torch
peak = lambda: int(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])
from deepsets import Sets, nn
sizes = torch.tensor(json.load(sys.stdin))
offsets = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
sets = Sets(torch.randn(int(offsets[-1]), 16), offsets)
phi = nn.SetSequential(nn.Equivariant(16, 64), torch.nn.ReLU(), nn.EquivariantBlock(64))
model = nn.DeepSet(phi, nn.mlp(128, 64, 1), pool=["max", "mean"])
with torch.no_grad():
    model(sets[-1:])
    before = peak()
    model(sets)
print((peak() - before) / 1024)
"""


def run() -> list[dict[str, object]]:
    cases = {
        "200,000 elements in sets of 10": [10] * 20_000,
        "200,000 elements, one set of 100,000, the rest of 10": [100_000] + [10] * 10_000,
        "400,000 elements in sets of 10": [10] * 40_000,
    }
    out: list[dict[str, object]] = []
    for case, sizes in cases.items():
        done = subprocess.run(
            [sys.executable, "-c", CODE], input=json.dumps(sizes), check=True, capture_output=True, text=True
        )
        out.append({"case": case, "peak MB over the model at rest": float(done.stdout)})
    return out
