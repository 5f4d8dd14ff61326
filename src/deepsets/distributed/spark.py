"""Engine for Spark clusters: `mapInArrow` to encode, `groupBy().applyInArrow` to merge and decode."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from itertools import chain
from typing import Any

from ..io.storage import arrow
from ..io.table_writer import open_output, parquet_writer
from .cluster import BUCKET, OfBucket, ToBuckets, staged, user_error
from .jobs import Input, Job


class Spark:
    """Engine for Spark: the session that is active, or one with the master `address`, by default on this machine.

    Tasks read row groups and write results through Arrow's file systems, so that no Hadoop connector is needed.
    """

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        try:
            import pyspark
        except ImportError:
            raise ImportError("the engine spark needs PySpark: pip install 'deepsets[spark]'.") from None
        if int(pyspark.__version__.split(".")[0]) < 4:
            raise ImportError(f"the engine spark needs PySpark 4 or later, found {pyspark.__version__}.")
        self.workers, self.address = workers, address

    def prepare(self, input: Input) -> None:
        """Do nothing: the cluster starts with the job."""

    def run(self, job: Job) -> dict[str, Any]:
        """Run a job."""
        with self._session(job.progress is not None) as spark, staged(job) as (folder, facts):
            if job.reduce is None:
                data = self._read(spark, job.inputs[0], _Plain(job.result))
            else:
                buckets = ToBuckets(job)
                middle = _Plain(job.middle.append(arrow().field(BUCKET, arrow().int64())))
                frames = [self._read(spark, input, middle, buckets) for input in job.inputs]
                merge, result = OfBucket(job), _Plain(job.result)
                grouped = reduce(lambda a, b: a.union(b), frames).groupBy(middle.schema.names[-1])
                data = grouped.applyInArrow(lambda t: result.to_spark(merge(middle.from_spark(t))), result.spark)
            data.mapInArrow(_Write(folder, _Plain(job.result)), "rows long").collect()
        return facts

    def collect(self, input: Input, progress: Any = None) -> Any:
        """Return the results of an input's function, as one table."""
        schema = _Plain(next(input.results(input.parts[0])).schema)
        with self._session(progress is not None) as spark:
            return schema.from_spark(self._read(spark, input, schema).toArrow())

    def _read(self, spark: Any, input: Input, schema: _Plain, then: Any = None) -> Any:
        """The results of an input's function, one task per part."""
        count = len(input.parts)
        return spark.range(0, count, 1, count).mapInArrow(_Parts(input, schema, then), schema.spark)

    @contextmanager
    def _session(self, progress: bool) -> Iterator[Any]:
        from pyspark.errors import PythonException
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        # Tasks may fail three times before the job does: local mode would end it with the first lost worker.
        builder = SparkSession.builder.master(self.address or f"local[{self.workers or '*'},4]").appName("deepsets")
        builder = builder.config("spark.ui.showConsoleProgress", str(progress and sys.stderr.isatty()).lower())
        if self.address is None:
            cores = self.workers or os.cpu_count() or 1
            options: dict[str, Any] = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": str(2 * cores)}
            options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
            builder = builder.config(map=options)
        python = os.environ.get("PYSPARK_PYTHON")
        os.environ["PYSPARK_PYTHON"] = python or sys.executable
        spark = active or builder.getOrCreate()
        try:
            yield spark
        except PythonException as error:
            raise user_error(error) from None
        finally:
            if active is None:
                spark.stop()
            if python is None:
                del os.environ["PYSPARK_PYTHON"]


class _Plain:
    """Schema in the types of Spark: lists of any size for lists of fixed size, columns by number (no dots)."""

    def __init__(self, schema: Any) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema

        self.original = schema
        kinds = [self._kind(field.type) for field in schema]
        self.schema = arrow().schema([(f"c{i}", kind) for i, kind in enumerate(kinds)])
        self.spark = from_arrow_schema(self.schema)

    def _kind(self, kind: Any) -> Any:
        return arrow().list_(self._kind(kind.value_type)) if hasattr(kind, "list_size") else kind

    def __getstate__(self) -> dict[str, Any]:
        return {"original": self.original, "schema": self.schema}

    def to_spark(self, table: Any) -> Any:
        return table.rename_columns(self.schema.names).cast(self.schema)

    def from_spark(self, table: Any) -> Any:
        return table.rename_columns(self.original.names).cast(self.original)


class _Parts:
    """Reads parts by their number, and applies the function of an input."""

    def __init__(self, input: Input, schema: _Plain, then: Any) -> None:
        self.input, self.schema, self.then = input, schema, then

    def __call__(self, batches: Any) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for table in self.input.results(self.input.parts[number]):
                    yield from self.schema.to_spark(self.then(table) if self.then else table).to_batches()


class _Write:
    """Writes the results of a task as a file, named by the task: one that is repeated replaces it."""

    def __init__(self, folder: str, schema: _Plain) -> None:
        self.folder, self.schema = folder, schema

    def __call__(self, batches: Any) -> Iterator[Any]:
        from pyspark import TaskContext

        first = next(batches, None)
        if first is not None:
            task = TaskContext.get()
            number = task.partitionId() if task is not None else 0
            with open_output(f"{self.folder}/part-{number:06d}.parquet") as file:
                with parquet_writer(file, self.schema.original) as sink:
                    for batch in chain([first], batches):
                        sink.write_table(self.schema.from_spark(arrow().Table.from_batches([batch])))
        yield arrow().record_batch({"rows": arrow().array([0])})
