"""What the engines for clusters share: states grouped into buckets of sets, and results staged beside the output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..io.storage import arrow, delete_folder, list_files, read_footers
from ..io.table_writer import publish
from .jobs import Job
from .states import hashes

BUCKET = "__bucket__"
_BYTES = 256 << 20  # of states in a bucket, at most, if every row were a set of its own


class ToBuckets:
    """Adds the bucket of each set. A bucket is grouped and reduced at once: sets by themselves would be too small."""

    def __init__(self, job: Job) -> None:
        width = sum(getattr(field.type, "list_size", 1) for field in job.middle)
        self.schema = job.middle
        self.count = min(max(8 * width * sum(input.members for input in job.inputs) // _BYTES, 16), 1024)

    def __call__(self, table: Any) -> Any:
        """Add the column of buckets."""
        bucket = arrow().array(hashes(table.column(0)) * self.count >> 32)
        return table.cast(self.schema).append_column(BUCKET, bucket)


class OfBucket:
    """Reduces the states of a bucket."""

    def __init__(self, job: Job) -> None:
        self.reduce, self.schema = job.reduce, job.result

    def __call__(self, table: Any) -> Any:
        """Reduce a table with all states of its sets."""
        return self.reduce(table.drop_columns(BUCKET)).cast(self.schema)


@contextmanager
def staged(job: Job) -> Iterator[tuple[str, dict[str, int]]]:
    """Give a folder for results, which become the output when the block ends without an error, and their number."""
    folder, facts = f"{job.output.rstrip('/')}.parts", {"sets": 0}
    if job.inputs[0].parts[0].groups is None:
        raise ValueError(f"the engines ray and spark read Parquet; found {job.inputs[0].parts[0].file}.")
    delete_folder(folder)
    try:
        yield folder, facts
        files = list_files(folder)
        facts["sets"] = sum(footer.num_rows for footer in read_footers(files))
        publish(files, job.output, job.manifest, job.sort, job.result)
    finally:
        delete_folder(folder)


def user_error(error: Exception) -> Exception:
    """Return the error of a task without the trace of the cluster, if it is one in the tables."""
    messages = re.findall(r"(?:ValueError|TableError): (.+)", str(error))
    return ValueError(messages[-1]) if messages else error
