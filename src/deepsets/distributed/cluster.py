"""What the engines for clusters share: states moved in buckets of sets, and results staged beside the output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..io.storage import arrow, delete_folder, list_files, read_footers
from ..io.table_writer import publish
from .jobs import Job
from .states import hashes

BUCKET, TABLE = "bucket", "table"  # columns: a number, and a table as the bytes of an Arrow stream
_BYTES = 256 << 20  # of states in a bucket, at most, if every row were a set of its own


def to_buckets(job: Job, table: Any) -> Iterator[Any]:
    """Divide states into buckets of sets: single sets would be too small to be grouped and reduced."""
    width = sum(getattr(field.type, "list_size", 1) for field in job.middle)
    count = min(max(8 * width * sum(input.members for input in job.inputs) // _BYTES, 16), 1024)
    table, bucket = table.cast(job.middle), hashes(table.column(0)) * count >> 32
    for number in range(count):
        found = table.filter(arrow().array(bucket == number))
        if len(found):
            yield pack(number, found)


def reduce_bucket(job: Job, group: Any) -> Any:
    """Reduce the states of a bucket to results."""
    return job.reduce(unpack(group)).cast(job.result)


def pack(number: int, table: Any) -> Any:
    """Return a table as one row: its number and its bytes."""
    sink = arrow().BufferOutputStream()
    with arrow().ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return arrow().table({BUCKET: [number], TABLE: [sink.getvalue().to_pybytes()]})


def unpack(packed: Any) -> Any:
    """Return the rows of all packed tables as one table."""
    return arrow().concat_tables(arrow().ipc.open_stream(each.as_buffer()).read_all() for each in packed[TABLE])


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
