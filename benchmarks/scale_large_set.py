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
from deepsets.distributed.state_codec import Coder
from deepsets.distributed.gather import gather
from deepsets.distributed.partition import BATCH
from deepsets.io import TableSets

def peak():
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) / 1024

def stream(total, batch=BATCH):
    generator = torch.Generator().manual_seed(0)
    for start in range(0, total, batch):
        n = min(batch, total - start)
        sets = Sets.unchecked(torch.randn(n, FEATURES, generator=generator), torch.tensor([0, n]))
        yield TableSets(sets, np.array([n]), pa.array([0]), None, [], True)

torch.set_num_threads(1)
torch.manual_seed(0)
net = nn.DeepSet(nn.mlp(FEATURES, 32, 32), nn.mlp(97, 32, 1), pool=["max", "mean", "std"], append_size=True)
coder = Coder(net, FEATURES)
gather(coder, stream(64_000))
idle, start, busy = peak(), time.perf_counter(), time.process_time()
states = gather(coder, stream(int(sys.argv[1])))
seconds, busy = time.perf_counter() - start, time.process_time() - busy
assert int(states.members[0]) == int(sys.argv[1])
print(idle, peak() - idle, seconds, busy, coder.decode(states.parts, None)["prediction"][0])
"""


def run(sizes: tuple[int, ...] = (10**7, 10**8, 10**7)) -> list[dict[str, object]]:
    """The smaller one comes before and after the larger one: the machine is not equally fast all the time."""
    out: list[dict[str, object]] = []
    seconds: dict[int, list[tuple[float, float]]] = {}
    for size in sizes:
        done = subprocess.run([sys.executable, "-c", CODE, str(size)], check=True, capture_output=True, text=True)
        idle, over, taken, busy, answer = map(float, done.stdout.split())
        seconds.setdefault(size, []).append((taken, busy))
        row = {"case": f"one set of {size:,} x 16", "idle MB": idle, "peak MB over idle": over, "seconds": taken}
        out.append(row | {"seconds of the core": busy, "answer": answer, "elements/s": size / taken})
    (_, small), (_, large) = sorted(seconds.items())
    times, busy_times = (mean(s[i] for s in large) / mean(s[i] for s in small) for i in (0, 1))
    row = {"case": "the larger against the smaller", "times the seconds": times}
    return [*out, row | {"times the seconds of the core": busy_times}]


if __name__ == "__main__":
    for row in run(*([tuple(int(float(a)) for a in sys.argv[1:])] if sys.argv[1:] else [])):
        print(row)
