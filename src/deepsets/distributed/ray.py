"""Engine for Ray clusters, on Ray Data: its readers, shuffle, retries, spilling and autoscaling."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..io.storage import arrow, resolve
from .cluster import BUCKET, reduce_bucket, staged, to_buckets, user_error
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

    def run(self, job: Job, progress: Any = None) -> dict[str, Any]:
        """Run a job."""
        with self._connected(progress is not None) as cpus, staged(job) as (folder, facts):
            if cpus < 2 and job.merge is not None:
                raise ValueError(
                    f"the engine ray needs 2 CPUs or more, some to read and some to merge; this cluster has {cpus}: "
                    "add machines, or use the engine local."
                )
            data, *others = [self._read(input) for input in job.inputs]
            data = data.union(*others) if others else data
            if job.merge is not None:
                data = data.map_batches(lambda table: to_buckets(job, table), batch_format="pyarrow", batch_size=None)
                data = data.groupby(BUCKET, num_partitions=min(4 * cpus, 200))
                # The tasks of a shuffle are retried three times only, unless Ray is told otherwise.
                data = data.map_groups(lambda group: reduce_bucket(job, group), batch_format="pyarrow", max_retries=-1)
            system, path = resolve(folder)
            data.write_parquet(path, filesystem=system)
        return facts

    def collect(self, input: Input, progress: Any = None) -> Any:
        """Return the results of an input's function, as one table."""
        with self._connected(progress is not None):
            return arrow().concat_tables(self.ray.get(self._read(input).to_arrow_refs()))

    def _read(self, input: Input) -> Any:
        """Results of an input. Ray reads the rows, except where sets must be whole or are named by their number."""
        data, parts = self.ray.data, input.parts
        if input.by is None or input.whole:
            items = data.from_items(list(range(len(parts))), override_num_blocks=len(parts))
            return items.map_batches(
                lambda batch: (t for number in batch["item"] for t in input.results(parts[number])), batch_size=1
            )
        files = list(dict.fromkeys(part.file for part in parts))
        system = resolve(files[0])[0]
        table = data.read_parquet([resolve(file)[1] for file in files], columns=input.columns, filesystem=system)
        return table.map_batches(
            lambda table: input.function(table), batch_format="pyarrow", batch_size=ROWS, zero_copy_batch=True
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
                ray.init(address=self.address or "local", log_to_driver=False, logging_level=logging.ERROR, **local)
            try:
                context = ray.data.DataContext.get_current()
                context.enable_progress_bars = progress and sys.stderr.isatty()
                yield int(ray.cluster_resources().get("CPU", 1))
            except ray.exceptions.RayTaskError as error:
                raise user_error(error) from None
            finally:
                if mine:
                    ray.shutdown()
