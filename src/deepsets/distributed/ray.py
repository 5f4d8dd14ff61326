"""Engine for Ray clusters, on Ray Data: its readers, shuffle, retries, spilling and autoscaling."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..io.storage import arrow, resolve
from .cluster import BUCKET, OfBucket, ToBuckets, staged, user_error
from .jobs import Input, Job

ROWS = 1 << 18  # rows that are encoded at a time


class Ray:
    """Engine for Ray clusters: the one at `address`, one that is connected, or one for this run alone."""

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        try:
            import ray
            import ray.data
        except ImportError:
            raise ImportError("the engine ray needs Ray: pip install 'deepsets[ray]'.") from None
        self.ray, self.workers, self.address = ray, workers, address

    def prepare(self, input: Input) -> None:
        """Do nothing: the cluster starts with the job."""

    def run(self, job: Job) -> dict[str, Any]:
        """Run a job."""
        with self._connected(job.progress is not None) as cpus, staged(job) as (folder, facts):
            if cpus < 2 and job.reduce is not None:
                raise ValueError(
                    f"the engine ray needs 2 CPUs or more, some to read and some to merge; this cluster has {cpus}: "
                    "add machines, or use the engine local."
                )
            data, *others = [self._read(input) for input in job.inputs]
            data = data.union(*others) if others else data
            if job.reduce is not None:
                data = data.map_batches(_function(ToBuckets(job)), batch_format="pyarrow")
                # Partitions are actors: more of them than CPUs would leave none to the readers.
                data = data.groupby(BUCKET, num_partitions=min(cpus // 2, 200))
                data = data.map_groups(_function(OfBucket(job)), batch_format="pyarrow")
            system, path = resolve(folder)
            data.write_parquet(path, filesystem=system)
        return facts

    def collect(self, input: Input, progress: Any = None) -> Any:
        """Return the results of an input's function, as one table."""
        with self._connected(progress is not None):
            return arrow().concat_tables(self.ray.get(self._read(input).to_arrow_refs()))

    def _read(self, input: Input) -> Any:
        """Results of an input. Ray reads the rows, except where sets must be whole or are named by their number."""
        data = self.ray.data
        if input.by is None or input.whole:
            items = data.from_items(list(range(len(input.parts))), override_num_blocks=len(input.parts))
            return items.map_batches(_function(_Parts(input)), batch_size=1)
        files = list(dict.fromkeys(part.file for part in input.parts))
        system = resolve(files[0])[0]
        table = data.read_parquet([resolve(file)[1] for file in files], columns=input.columns, filesystem=system)
        return table.map_batches(
            _function(input.function), batch_format="pyarrow", batch_size=ROWS, zero_copy_batch=True
        )

    @contextmanager
    def _connected(self, progress: bool) -> Iterator[int]:
        """Connect to the cluster for the block; gives its number of CPUs."""
        ray, mine = self.ray, not self.ray.is_initialized()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.getLogger("ray.data").setLevel(logging.ERROR)
            if mine:
                local = {} if self.address else {"include_dashboard": False, "num_cpus": self.workers}
                ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR, **local)
            try:
                context = ray.data.DataContext.get_current()
                context.enable_progress_bars = progress and sys.stderr.isatty()
                yield int(ray.cluster_resources().get("CPU", 1))
            except ray.exceptions.RayTaskError as error:
                raise user_error(error) from None
            finally:
                if mine:
                    ray.shutdown()


class _Parts:
    """Reads parts by their number, and applies the function of an input."""

    def __init__(self, input: Input) -> None:
        self.input = input

    def __call__(self, batch: dict[str, Any]) -> Iterator[Any]:
        for number in batch["item"]:
            yield from self.input.results(self.input.parts[number])


def _function(function: Any) -> Any:
    """A plain function, as Ray needs it."""
    return lambda table: function(table)
