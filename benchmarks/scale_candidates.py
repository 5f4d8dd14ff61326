"""Set expansion over a million to a hundred million candidates in files, on all cores: seconds, and peak memory.

python -m benchmarks.scale_candidates [COUNT ...] takes other numbers. 10^8 need 8 GB of disk in the temporary folder.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deepsets import distributed as scale
from deepsets.expand import SetExpander

WIDTH, FILE = 16, 1_000_000


def run(counts: tuple[int, ...] = (10**6, 10**7, 10**8)) -> list[dict[str, object]]:
    known = np.random.default_rng(0).standard_normal((100, WIDTH), dtype=np.float32)
    sets = [list(range(i, i + 10)) for i in range(0, 90, 3)]
    expander = SetExpander(embedding=0, epochs=1, random_state=0).fit(sets, items=known)
    engine, out, done = scale.Engine(workers=multiprocessing.cpu_count()), [], 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "candidates"
        folder.mkdir()
        for count in counts:
            for start in range(done, count, FILE):
                _write(folder / f"{start:012d}.parquet", start, min(FILE, count - start))
            done = max(done, count)
            with _Peak() as peak:
                begin = time.perf_counter()
                found = scale.expand(expander, [0, 1, 2], folder, 10, element="name", engine=engine)
                seconds = time.perf_counter() - begin
            size = sum(file.stat().st_size for file in folder.iterdir())
            row = {"case": f"{count:,} candidates of {WIDTH} features, {size / 1e9:.2f} GB", "seconds": seconds}
            row |= {"workers": engine.workers, "candidates/s": count / seconds, "best": found[0].element}
            out.append(row | {"peak MB of a worker": peak.megabytes})
    return out


def _write(path: Path, first: int, count: int) -> None:
    """Numbers that do not compress, as they are: to write them is not what is measured."""
    values = np.random.default_rng(first).standard_normal(count * WIDTH, dtype=np.float32)
    kind = pa.list_(pa.field("element", pa.float32(), nullable=False), WIDTH)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), type=kind)
    table = pa.table({"name": np.arange(first, first + count), "v": vectors})
    pq.write_table(table, path, 250_000, compression="none", use_dictionary=False)


class _Peak:
    """The peak of the worker process that had most, looked up now and then: it only grows."""

    megabytes = 0.0

    def __enter__(self) -> _Peak:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.1):
            for child in multiprocessing.active_children():
                try:
                    status = Path(f"/proc/{child.pid}/status").read_text()
                    high = int(status.split("VmHWM:")[1].split()[0]) / 1024
                except (OSError, IndexError):  # it has just ended
                    continue
                self.megabytes = max(self.megabytes, high)


if __name__ == "__main__":
    for row in run(*([tuple(int(float(a)) for a in sys.argv[1:])] if sys.argv[1:] else [])):
        print(row)
