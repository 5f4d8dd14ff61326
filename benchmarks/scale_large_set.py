"""One set of 10^7 and of 10^8 elements x 16 features, generated in a stream, by one worker: peak memory and time.

python -m benchmarks.scale_large_set [SIZE ...] takes other sizes.
"""

from __future__ import annotations

import subprocess
import sys
from statistics import mean

CODE = """
import sys, time
import numpy as np, pyarrow as pa, torch
from benchmarks.scale_data import FEATURES
from deepsets import Sets, nn
from deepsets.scale._coder import Coder
from deepsets.scale._gather import gather
from deepsets.scale._parts import BATCH
from deepsets.tables import TableSets

def peak():
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) / 1024

def stream(total, batch=BATCH):
    generator = torch.Generator().manual_seed(0)
    for start in range(0, total, batch):
        n = min(batch, total - start)
        sets = Sets._trusted(torch.randn(n, FEATURES, generator=generator), torch.tensor([0, n]))
        yield TableSets(sets, np.array([n]), pa.array([0]), None, [], True)

torch.set_num_threads(1)
torch.manual_seed(0)
net = nn.DeepSet(nn.mlp(FEATURES, 32, 32), nn.mlp(97, 32, 1), pool=["max", "mean", "std"], size=True)
coder = Coder(net, FEATURES)
gather(coder, stream(64_000))
idle, start = peak(), time.perf_counter()
states = gather(coder, stream(int(sys.argv[1])))
seconds = time.perf_counter() - start
assert int(states.members[0]) == int(sys.argv[1])
print(idle, peak() - idle, seconds, coder.decode(states.parts, None)["prediction"][0])
"""


def run(sizes: tuple[int, ...] = (10**7, 10**8, 10**7)) -> list[dict[str, object]]:
    """The smaller one comes before and after the larger one: the machine is not equally fast all the time."""
    out: list[dict[str, object]] = []
    seconds: dict[int, list[float]] = {}
    for size in sizes:
        done = subprocess.run([sys.executable, "-c", CODE, str(size)], check=True, capture_output=True, text=True)
        idle, over, taken, answer = map(float, done.stdout.split())
        seconds.setdefault(size, []).append(taken)
        row = {"case": f"one set of {size:,} x 16", "idle MB": idle, "peak MB over idle": over, "seconds": taken}
        out.append(row | {"answer": answer, "elements/s": size / taken})
    small, large = min(seconds), max(seconds)
    times = mean(seconds[large]) / mean(seconds[small])
    return [*out, {"case": f"{large:,} against {small:,}", "elements": large / small, "seconds": times}]


if __name__ == "__main__":
    for row in run(*([tuple(int(float(a)) for a in sys.argv[1:])] if sys.argv[1:] else [])):
        print(row)
