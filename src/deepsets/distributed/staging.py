"""What the engines for clusters share: states grouped into buckets of sets, and results staged beside the output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..io import arrow
from ..io.storage import delete_folder, list_files, publish, read_footers
from .jobs import Job
from .states import hashes

BUCKET = "__bucket__"
_BYTES = 256 << 20  # of states in a bucket, at most, if every row were a set of its own


class ToBuckets:
    """Adds the bucket of each set. A bucket is grouped and reduced at once: sets by themselves would be too small."""

    def __init__(self, job: Job) -> None:
        widths = [getattr(field.type, "list_size", 1) for field in job.middle]
        members = sum(part.members for input in job.inputs for part in input.parts)
        self.count = min(max(8 * sum(widths) * members // _BYTES, 16), 1024)

    def __call__(self, table: Any) -> Any:
        """Add the column of buckets."""
        return table.append_column(BUCKET, arrow().array(hashes(table.column(0)) * self.count >> 32))


class OfBucket:
    """Reduces the states of a bucket."""

    def __init__(self, job: Job) -> None:
        self.reduce, self.schema = job.reduce, job.result

    def __call__(self, table: Any) -> Any:
        """Reduce a table with all states of its sets."""
        return self.reduce(table.drop_columns(BUCKET)).cast(self.schema)


@contextmanager
def staged(job: Job) -> Iterator[str]:
    """Give a folder for the results of the block, which become the output when it ends without an error."""
    folder = f"{job.output.rstrip('/')}.parts"
    if job.inputs[0].parts[0].groups is None:
        raise ValueError(f"the engines ray and spark read Parquet; found {job.inputs[0].parts[0].file}.")
    delete_folder(folder)
    try:
        yield folder
        publish(list_files(folder), job.output, job.manifest, job.result.names[0] if job.reduce else None, job.result)
    finally:
        delete_folder(folder)


def user_error(error: Exception) -> Exception:
    """Return the error of a task without the trace of the cluster, if it is one in the tables."""
    messages = re.findall(r"(?:ValueError|TableError): (.+)", str(error))
    return ValueError(messages[-1]) if messages else error


def count_rows(folder: str) -> int:
    """Return the number of rows of the Parquet files of a folder."""
    return sum(footer.num_rows for footer in read_footers(list_files(folder)))
