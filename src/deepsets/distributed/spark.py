"""Engine for Spark clusters: `mapInArrow` to encode, `groupBy().applyInArrow` to merge and decode."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

from ..io.storage import arrow
from ..io.table_writer import open_output, parquet_writer
from ..train.process import keep_memory
from .jobs import Input, Job, user_error
from .states import NUMBER, TABLE, pack, unpack

_PACKED = f"{NUMBER} long, {TABLE} binary"


class Spark:
    """Engine for Spark: the session that is active, or one with the master `address`, by default on this machine.

    Tasks read row groups and write results through Arrow's file systems, so that no Hadoop connector is needed. Tables
    are moved as bytes, because Spark has no lists of fixed size.
    """

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        try:
            import pyspark
        except ImportError:
            raise ImportError("the engine spark needs PySpark: pip install 'deepsets[spark]'.") from None
        if int(pyspark.__version__.split(".")[0]) < 4:
            raise ImportError(f"the engine spark needs PySpark 4 or later, found {pyspark.__version__}.")
        home = os.environ.get("JAVA_HOME")
        if shutil.which("java", path=f"{home}/bin" if home else None) is None:
            where = f" in JAVA_HOME={home}" if home else ""
            raise ImportError(f"the engine spark needs Java, and found none{where}: install it, or set JAVA_HOME.")
        self.workers, self.address = workers, address

    def run(self, job: Job, progress: Any = None) -> dict[str, Any]:
        """Run a job."""
        with self._session(progress is not None) as spark, job.staged() as (folder, facts):

            def write(number: int, tables: Iterator[Any]) -> Any:
                """Write a file of results; a task that is repeated replaces it."""
                with open_output(f"{folder}/part-{number:06d}.parquet") as file:
                    with parquet_writer(file, job.result) as sink:
                        for table in tables:
                            sink.write_table(table.cast(job.result))
                return arrow().table({"done": [number]})

            if job.merge is None:
                _parts(spark, job.inputs[0], "done long", lambda number, tables: [write(number, tables)]).collect()
                return facts

            def buckets(_: int, tables: Iterator[Any]) -> Iterator[Any]:
                return (bucket for table in tables for bucket in job.to_buckets(table))

            def merged(group: Any) -> Any:
                return write(group[NUMBER][0].as_py(), iter([job.reduce_bucket(group)]))

            frames = [_parts(spark, input, _PACKED, buckets) for input in job.inputs]
            reduce(lambda a, b: a.union(b), frames).groupBy(NUMBER).applyInArrow(merged, "done long").collect()
        return facts

    def collect(self, input: Input, progress: Any = None) -> Any:
        """Return the results of an input's function, as one table."""
        with self._session(progress is not None) as spark:
            packed = _parts(spark, input, _PACKED, lambda number, tables: (pack(number, table) for table in tables))
            return unpack(packed.toArrow())

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
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        spark = active or builder.getOrCreate()
        try:
            yield spark
        except PythonException as error:
            raise user_error(error) from None
        finally:
            if active is None:
                spark.stop()


def _parts(spark: Any, input: Input, schema: str, then: Any) -> Any:
    """What `then` gives for the number of a part and the results of the input's function, one task per part."""

    def read(batches: Any) -> Iterator[Any]:
        keep_memory()  # of a worker of Spark; see Workers
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for table in then(number, input.results(input.parts[number])):
                    yield from table.to_batches()

    return spark.range(0, len(input.parts), 1, len(input.parts)).mapInArrow(read, schema)
