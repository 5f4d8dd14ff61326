"""Engine for Ray clusters, on Ray Data: its tasks, shuffle, retries, spilling and autoscaling."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..io.storage import arrow, resolve
from ..train.process import keep_memory
from .jobs import Input, Job, user_error
from .states import NUMBER


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
        with self._connected(progress is not None) as cpus, job.staged() as (folder, facts):
            then = job.to_buckets if job.merge is not None else lambda table: [table]
            data, *others = [self._read(input, then) for input in job.inputs]
            data = data.union(*others) if others else data
            if job.merge is not None:
                data = data.groupby(NUMBER, num_partitions=min(2 * cpus, 200))

                def merge(group: Any) -> Any:
                    return job.reduce_bucket(group)

                # The tasks of a shuffle are retried three times only, unless Ray is told otherwise.
                data = data.map_groups(merge, batch_format="pyarrow", max_retries=-1)
            system, path = resolve(folder)
            data.write_parquet(path, filesystem=system)
        return facts

    def collect(self, input: Input, progress: Any = None) -> Any:
        """Return the results of an input's function, as one table."""
        with self._connected(progress is not None):
            return arrow().concat_tables(self.ray.get(self._read(input, lambda table: [table]).to_arrow_refs()))

    def _read(self, input: Input, then: Any) -> Any:
        """What `then` gives for the results of an input, one task per part.

        A task reads its row groups itself: rows that Ray reads would pass through its object store, and a file would be
        read by one task alone.
        """

        def encode(batch: Any) -> Iterator[Any]:  # the name is seen in progress bars
            keep_memory()  # of a worker of Ray; see Workers
            for number in batch["item"]:
                for table in input.results(input.parts[number]):
                    yield from then(table)

        numbers = list(range(len(input.parts)))
        return self.ray.data.from_items(numbers, override_num_blocks=len(numbers)).map_batches(encode, batch_size=1)

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
            context = ray.data.DataContext.get_current()
            before = context.enable_progress_bars, context.op_resource_reservation_enabled
            context.enable_progress_bars = progress and sys.stderr.isatty()
            context.op_resource_reservation_enabled = False  # half of the CPUs would wait for the steps to come
            try:
                yield int(ray.cluster_resources().get("CPU", 1))
            except ray.exceptions.RayTaskError as error:
                raise user_error(error) from None
            finally:
                context.enable_progress_bars, context.op_resource_reservation_enabled = before
                if mine:
                    ray.shutdown()
