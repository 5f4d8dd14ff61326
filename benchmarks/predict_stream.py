"""Memory and speed of `deepsets predict` on a Parquet table larger than what it may use: 2 GB by default.

python -m benchmarks.predict_stream [GB]: makes the table in a temporary directory and deletes it afterwards.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

MAKE = """
import sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
path, size, features = sys.argv[1], float(sys.argv[2]) * 1e9, 32
rng = np.random.default_rng(0)
writer, first = None, 0
while writer is None or writer.file_handle.tell() < size:
    sets = 20_000
    sizes = rng.integers(1, 21, size=sets)
    rows = int(sizes.sum())
    columns = {"set": first + np.repeat(np.arange(sets), sizes)}
    columns |= {f"x{i}": rng.normal(size=rows) for i in range(features)}
    columns["y"] = np.repeat(rng.normal(size=sets), sizes)
    table = pa.table(columns)
    writer = writer or pq.ParquetWriter(path, table.schema)
    writer.write_table(table)
    first += sets
writer.close()
pq.write_table(table.slice(0, 3000), path.replace("table", "few"))
"""

# The high-water mark of memory since the process began, in MB; ru_maxrss would also count what stood there before it.
PEAK = """
def peak():
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) / 1024
"""
IDLE = (
    PEAK
    + """
import sys, deepsets, deepsets.cli, pyarrow.dataset, pyarrow.parquet
deepsets.load(sys.argv[1])
print(peak())
"""
)
PREDICT = (
    PEAK
    + """
import sys
from deepsets.cli import app
app(sys.argv[1:], standalone_mode=False)
print(peak())
"""
)


def run(gigabytes: float = 2.0) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        table, model, output = (str(Path(folder) / name) for name in ("table.parquet", "model", "out.parquet"))
        _python(MAKE, table, str(gigabytes))
        fit = ["fit", table.replace("table", "few"), "--by", "set", "--target", "y", "--epochs", "1", "-o", model]
        _python("import sys\nfrom deepsets.cli import app\napp(sys.argv[1:])", *fit)
        idle = float(_python(IDLE, model))
        *text, peak = _python(PREDICT, "predict", model, table, "-o", output, "--json").splitlines()
        result = json.loads("".join(text))
        size = Path(table).stat().st_size
    return [
        {
            "case": f"{size / 1e9:.2f} GB, {result['members']} rows of 32 features in {result['sets']} sets",
            "idle MB": idle,
            "peak MB over idle": float(peak) - idle,
            "rows/s": result["members"] / result["seconds"],
            "seconds": result["seconds"],
        }
    ]


def _python(code: str, *args: str) -> str:
    return subprocess.run([sys.executable, "-c", code, *args], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    for row in run(*map(float, sys.argv[1:])):
        print(row)
