"""Predictions and states for tables of any size: checked, described as a job, and run by an engine."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import socket
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ..files import locked
from ..io import TableError, model_identity
from ..io.files import File
from ..io.row_groups import PART, LargeTable, Part, cut, tables
from ..io.storage import arrow, delete_folder, file_stamps, is_remote, list_files, read_footers, resolve
from ..io.table_writer import check_output, publish, read_manifest
from . import functions
from .states import hashes, negate, pack, unpack

Progress = Callable[[int, int], None]
KEY = b"deepsets"
BUCKET = 256 << 20  # bytes of states in a bucket, at most, if every row were a set of its own


class Engine(NamedTuple):
    """Where the work is done.

    Attributes
    ----------
    name : {"local", "ray", "spark"}, default="local"
        Processes of this machine, a Ray cluster, or a Spark cluster.
    workers : int, optional
        Number of processes or cores; by default one per core.
    address : str, optional
        A running Ray cluster (``auto``, ``host:6379``) or a Spark master (``spark://host:7077``, ``yarn``);
        by default one is started on this machine for the run.

    Examples
    --------
    >>> Engine("ray", workers=8, address="auto").name
    'ray'
    """

    name: str = "local"
    workers: int | None = None
    address: str | None = None


def open_engine(engine: str | Engine) -> Any:
    """Return what runs jobs: an object with `run(job, progress)` and `collect(input, progress)`."""
    name, workers, address = engine if isinstance(engine, Engine) else Engine(engine)
    if name not in ("local", "ray", "spark"):
        raise ValueError(f"unknown engine {name!r}: use one of local, ray, spark.")
    if workers is not None and workers < 1:
        raise ValueError(f"at least one worker is needed, found {workers}.")
    if name == "local" and address is not None:
        raise ValueError("an address is for the engines ray and spark; the engine local runs on this machine.")
    found = re.fullmatch(r"(?:\w+://)?([\w.-]+):(\d+)", address or "")
    if found:  # the engines would try for minutes
        try:
            socket.create_connection((found[1], int(found[2])), timeout=10).close()
        except OSError as error:
            raise ValueError(f"no cluster answers at {address} ({error.strerror or error}): is it running?") from None
    return getattr(import_module(f".{name}", __package__), name.capitalize())(workers, address)


class Input(NamedTuple):
    """Tables to be read, and the function to be applied to them."""

    parts: list[Part]
    columns: list[str]
    function: Any  # from a table to a table
    by: str | None  # column that names the set; None: a row is a set, named by its number
    nested: bool = False  # a row is a set
    types: Any = None  # options of `File`
    whole: bool = False  # the function needs whole sets, and a part is a file
    direct: Any = None  # from a table of whole sets to final results; the row groups are in the order of the sets
    size: int | None = None  # bytes of a table

    @property
    def members(self) -> int:
        """About how many members there are."""
        return sum(part.members for part in self.parts)

    def tables(self, part: Part) -> Iterator[Any]:
        """Read a part."""
        file, groups = File(part.file, **(self.types or {})), self.direct is not None
        options: Any = {"nested": self.nested, "by": self.by, "whole": self.whole, "groups": groups, "size": self.size}
        return tables(file, part, self.columns, **options)

    def results(self, part: Part) -> Iterator[Any]:
        """Read a part, and apply the function."""
        return map(self.function, self.tables(part))


class Job(NamedTuple):
    """Work of an engine: read the inputs, apply their functions, group by set, reduce, write."""

    inputs: list[Input]
    merge: Any  # from partial states to one per set; None: the functions of the inputs give the results
    reduce: Any  # from a table with all partial states of some sets to results
    output: str
    manifest: dict[str, Any]  # identifies the job, and is stored with its output
    schema: bytes  # of the results; pickle would lose what cannot be null
    overwrite: bool

    @property
    def result(self) -> Any:
        """Schema of the results."""
        return arrow().ipc.read_schema(arrow().py_buffer(self.schema))

    def publish(self, files: list[str]) -> None:
        """Combine files of results to the output."""
        publish(files, self.output, self.manifest, self.result.names[0] if self.merge else None, self.result)

    def to_buckets(self, states: Any) -> Iterator[Any]:
        """Divide states into packed buckets of sets: single sets would be too small to be grouped by a cluster."""
        width = sum(getattr(field.type, "list_size", 1) for field in states.schema)
        count = min(max(8 * width * sum(input.members for input in self.inputs) // BUCKET, 16), 1024)
        bucket = hashes(states.column(0)) * count >> 32
        for number in range(count):
            found = states.filter(arrow().array(bucket == number))
            if len(found):
                yield pack(number, found)

    def reduce_bucket(self, packed: Any) -> Any:
        """Reduce the states of a bucket to results."""
        return self.reduce(unpack(packed)).cast(self.result)

    @contextmanager
    def staged(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Give a folder for files of results, which become the output at the end of the block, and their number."""
        folder, facts = f"{self.output.rstrip('/')}.parts", {"sets": 0}
        if self.inputs[0].parts[0].groups is None:
            raise ValueError(f"the engines ray and spark read Parquet; found {self.inputs[0].parts[0].file}.")
        delete_folder(folder)
        try:
            yield folder, facts
            files = list_files(folder)
            facts["sets"] = sum(footer.num_rows for footer in read_footers(files))
            self.publish(files)
        finally:
            delete_folder(folder)


def predict(
    model: Any,
    table: str | Path,
    output: str | Path,
    *,
    by: str | None = None,
    features: Sequence[str] | None = None,
    z: Sequence[str] = (),
    engine: str | Engine = "local",
    part_size: int = PART,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Predict for all sets of a table of any size, and write the predictions.

    Parameters
    ----------
    model : str, Path, estimator or DeepSet
        A fitted model, or the path or URI of a model folder.
    table : str or Path
        Path or URI of a file, of a folder of Parquet files, or of states written by :func:`pool`. The rows of a set
        may stand anywhere; only models that need all members at once (estimators of members, sorting poolings) want
        the rows of a set to be neighbours in one file.
    output : str or Path
        Path or URI of a file, whose extension gives the format, or of a folder (no extension) for Parquet files.
    by : str, optional
        Column that names the set of each row; by default that of the fit.
    features, z : sequence of str, optional
        Columns of the members and of the set. By default those of the fit; for a `DeepSet` all other columns.
    engine : {"local", "ray", "spark"} or Engine, default="local"
        Where to compute.
    part_size : int
        Members of a part, the unit of work that is done again after a crash; at least a row group. Of tables in the
        order of their sets, which need no merging, a part has a quarter of them.
    overwrite : bool, default=False
        Replace an existing output.
    progress : callable, optional
        Called by the engine local after each part, with the number of members of the part and of all that were left.

    Returns
    -------
    dict
        What was written: output, number of sets, seconds.
    """
    net, runner = functions.set_model(model), open_engine(engine)
    check_output(output, overwrite, [table])
    states, merge = states_header(table), functions.merge(model)
    if states is not None:
        _check_header({"model": model_identity(net)}, states, table)
        job = _job(net, [_states_input(table, functions.decode(model))], None, None, output, overwrite)
        return _run(runner, job, progress)
    rows = LargeTable(net, table, by, features, z)
    whole = functions.predict_whole(model, *rows.names)
    if functions.is_mergeable(net):
        ordered = rows.in_order()  # then parts leave hardly any states, and smaller ones keep all workers busy
        input = _rows_input(model, rows, part_size // 4 if ordered else part_size)
        input = input._replace(direct=whole if ordered else None)
        job = _job(net, [input], merge, _chain(merge, functions.decode(model)), output, overwrite, rows)
    else:
        rows.check_whole()
        input = _rows_input(model, rows, 1 << 62)._replace(function=whole, whole=True)
        job = _job(net, [input], None, None, output, overwrite, rows)
    return _run(runner, job, progress)


def pool(
    model: Any,
    table: str | Path,
    output: str | Path,
    *,
    by: str | None = None,
    features: Sequence[str] | None = None,
    z: Sequence[str] = (),
    merge: str | Path | None = None,
    remove: bool = False,
    engine: str | Engine = "local",
    part_size: int = PART,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write the state of every set of a table, which can be updated with new rows later.

    Parameters
    ----------
    model, table, by, features, z, engine, part_size, overwrite, progress
        As for :func:`predict`. The model must have states that merge.
    output : str or Path
        Path or URI of a Parquet file, or of a folder (no extension).
    merge : str or Path, optional
        States written before, to which the rows are added.
    remove : bool, default=False
        Remove the rows from the states of `merge` instead, for poolings that are sums (sum, mean, sqrt, std).

    Returns
    -------
    dict
        What was written: output, number of sets, seconds.
    """
    if Path(output).suffix not in ("", ".parquet", ".pq"):
        raise ValueError(f"states are written as Parquet, a file or a folder; found {output}.")
    if remove and merge is None:
        raise ValueError("remove=True needs merge, the states from which members are removed.")
    net, runner = functions.set_model(model), open_engine(engine)
    check_output(output, overwrite, [table])
    rows = LargeTable(net, table, by, features, z)
    inputs = [_rows_input(model, rows, part_size)]
    if merge is not None:
        old = states_header(merge)
        if old is None:
            raise ValueError(f"{merge} does not hold states: wanted an output of pool (`deepsets pool`).")
        _check_header(_header(net, rows), old, merge)
        inputs.append(_states_input(merge, _chain()))
    join, minus = functions.merge(model), functions.remove(model)
    job = _job(net, inputs, join, join, output, overwrite, rows)
    if remove:
        example = inputs[0].function(rows.head)
        minus(example, example)  # poolings that cannot remove raise here
        inputs[0] = inputs[0]._replace(function=_chain(inputs[0].function, negate))
        job = job._replace(reduce=minus, manifest=job.manifest | {"remove": True})
    return _run(runner, job, progress)


def states_header(table: str | Path) -> dict[str, Any] | None:
    """Return the description of a table of states, or None for any other table."""
    found: dict[str, Any] | None = None
    if Path(table).suffix in (".parquet", ".pq"):
        try:
            text = (File(table).schema.metadata or {}).get(KEY)
        except TableError:
            return None
        found = None if text is None else json.loads(text)
    elif not Path(table).suffix:
        found = read_manifest(table)
    return found if found is not None and found["kind"] == "states" else None


def _header(net: Any, rows: LargeTable) -> dict[str, Any]:
    return dict(zip(("by", "features", "z"), rows.names, strict=True)) | {"model": model_identity(net)}


def _check_header(wanted: dict[str, Any], found: dict[str, Any], path: str | Path) -> None:
    for name, value in wanted.items():
        if found[name] != value:
            if name == "model":
                raise ValueError(f"{path} was pooled with another model: its states do not fit this one.")
            raise ValueError(f"{path} was pooled with {name} {found[name]!r}, found {value!r} here.")


def _rows_input(model: Any, rows: LargeTable, part_size: int) -> Input:
    by, features, z = rows.names
    encode = functions.encode(model, by=by, features=features, z=z)
    return Input(cut(rows.files, part_size), rows.columns, encode, rows.by, rows.nested, rows.types)


def _states_input(table: str | Path, function: Any) -> Input:
    parts = cut(list_files(table), 1 << 15, lambda group: group.num_rows)
    names = File(parts[0].file).schema.names
    return Input(parts, names, function, names[0])


def _chain(*steps: Any) -> Any:
    """Functions of a table, one after another."""
    return functools.partial(_apply, steps)


def _apply(steps: Sequence[Any], table: Any) -> Any:
    return functools.reduce(lambda found, step: step(found), steps, table)


def _job(
    net: Any, inputs: list[Input], merge: Any, reduce: Any, output: Any, overwrite: bool, rows: LargeTable | None = None
) -> Job:
    """A job, with the schema of its results found by running it on the first rows."""
    head = rows.head if rows else File(inputs[0].parts[0].file).head(inputs[0].columns)
    result = _chain(inputs[0].function, *([reduce] if reduce else []))(head)
    header = {"kind": "states" if reduce is merge is not None else "predictions"}
    header |= _header(net, rows) if rows else {"model": model_identity(net)}
    parts = [part for input in inputs for part in input.parts]
    stamps = file_stamps(list(dict.fromkeys(part.file for part in parts)))
    cuts = json.dumps([[part.file, part.groups] for part in parts])
    manifest = header | {"format": 3, "tables": stamps, "parts": zlib.crc32(cuts.encode())}
    schema = result.schema.with_metadata({KEY: json.dumps(header)})
    return Job(inputs, merge, reduce, str(output), manifest, schema.serialize().to_pybytes(), overwrite)


def work_folder(output: str | Path) -> Path:
    """Return the local folder of what is kept until an output is complete: beside it, or for a remote one elsewhere."""
    if is_remote(output):
        name = f"deepsets-{hashlib.sha256(str(output).encode()).hexdigest()[:16]}.parts"
        return Path(tempfile.gettempdir()) / name
    return Path(resolve(output)[1] + ".parts")


def _run(runner: Any, job: Job, progress: Progress | None) -> dict[str, Any]:
    start = time.perf_counter()
    with locked(work_folder(job.output)):
        facts = runner.run(job, progress)
    return {"output": job.output, **facts, "seconds": round(time.perf_counter() - start, 3)}


def user_error(error: Exception) -> Exception:
    """Return the error of a task of a cluster without its trace, if it is one in the tables."""
    messages = re.findall(r"(?:ValueError|TableError): (.+)", str(error))
    return ValueError(messages[-1]) if messages else error
