"""Predictions and states for tables of any size: checked, described as a job, and run by an engine."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ..io import TableError, model_identity
from ..io.files import File
from ..io.row_groups import PART, LargeTable, Part, cut, sorted_spans, tables
from ..io.storage import file_stamps, list_files
from ..io.table_writer import check_output, read_manifest
from .functions import Chain, Decode, Encode, Merge, Predict, Remove
from .model import SetModel
from .states import negate

Progress = Callable[[int], None]
KEY = b"deepsets"


class Engine(NamedTuple):
    """Where the work is done.

    Attributes
    ----------
    name : {"local", "ray", "spark"}, default="local"
        Processes of this machine, a Ray cluster, or a Spark cluster.
    workers : int, optional
        Number of processes or cores; by default one per core.
    address : str, optional
        A running Ray cluster (``auto``, ``ray://host:10001``) or a Spark master (``spark://host:7077``, ``yarn``);
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
    """Return what runs jobs: an object with `prepare(input)`, `run(job)` and `collect(input)`."""
    name, workers, address = engine if isinstance(engine, Engine) else Engine(engine)
    if workers is not None and workers < 1:
        raise ValueError(f"at least one worker is needed, found {workers}.")
    if name == "local" and address is not None:
        raise ValueError("an address is for the engines ray and spark; the engine local runs on this machine.")
    if name not in ("local", "ray", "spark"):
        raise ValueError(f"unknown engine {name!r}: use one of local, ray, spark.")
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
    merge: Any = None  # merges the results of the function
    direct: Any = None  # from a table of whole sets to final results

    @property
    def members(self) -> int:
        """About how many members there are."""
        return sum(part.members for part in self.parts)

    def tables(self, part: Part) -> Iterator[Any]:
        """Read a part."""
        file = File(part.file, **(self.types or {}))
        return tables(file, part, self.columns, nested=self.nested, by=self.by, whole=self.whole)

    def results(self, part: Part) -> Iterator[Any]:
        """Read a part, and apply the function."""
        return map(self.function, self.tables(part))


class Job(NamedTuple):
    """Work of an engine: read the inputs, apply their functions, group by set, reduce, write."""

    inputs: list[Input]
    reduce: Any  # from a table with all rows of some sets to results; None: the functions give the results
    output: str
    manifest: dict[str, Any]  # identifies the job, and is stored with its output
    middle: Any  # schema of the tables before `reduce`
    result: Any  # and after it
    overwrite: bool = False
    progress: Progress | None = None

    @property
    def sort(self) -> str | None:
        """Column by which the output is sorted."""
        return self.result.names[0] if self.reduce else None


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
        Members of a part, the unit of work that is done again after a crash; at least a row group.
    overwrite : bool, default=False
        Replace an existing output.
    progress : callable, optional
        Called with the number of members of each finished part.

    Returns
    -------
    dict
        What was written: output, number of sets, seconds.
    """
    net, runner = SetModel(model), open_engine(engine)
    check_output(output, overwrite, [table])
    found = states_header(table)
    if found is not None:
        header = {"kind": "predictions", "model": model_identity(net.model)}
        _check_header(header, found, table, ["model"])
        job = _job([_states_input(table, Decode(model))], None, output, header)
    else:
        rows = LargeTable(net.model, table, by, features, z)
        direct = Predict(model, *rows.names)
        if net.mergeable:
            input = _rows_input(rows, Encode(model, *rows.names), part_size, merge=Merge(model))
            runner.prepare(input)
            if input.by is not None and not input.nested:
                input = input._replace(direct=direct, parts=sorted_spans(input.parts, input.by))
            job = _job([input], Chain(Merge(model), Decode(model)), output, _header(rows, "predictions"), rows.head)
        else:
            rows.check_whole()
            input = _rows_input(rows, direct, 1 << 62, whole=True)
            job = _job([input], None, output, _header(rows, "predictions"), rows.head)
    return _run(runner, job._replace(overwrite=overwrite, progress=progress))


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
    net, runner = SetModel(model), open_engine(engine)
    check_output(output, overwrite, [table])
    rows = LargeTable(net.model, table, by, features, z)
    encode, header = Encode(model, *rows.names), _header(rows, "states")
    inputs = [_rows_input(rows, encode, part_size, merge=Merge(model))]
    runner.prepare(inputs[0])
    if merge is not None:
        old = states_header(merge)
        if old is None:
            raise ValueError(f"{merge} does not hold states: wanted an output of pool (`deepsets pool`).")
        _check_header(header, old, merge, ["by", "features", "z", "model"])
        inputs.append(_states_input(merge, _same))
    job = _job(inputs, Merge(model), output, header, rows.head)
    if remove:
        example = encode(rows.head)
        Remove(model)(example, example)  # poolings that cannot remove raise here
        inputs[0] = inputs[0]._replace(function=Chain(encode, negate))
        job = job._replace(reduce=Remove(model), manifest=job.manifest | {"remove": True})
    return _run(runner, job._replace(overwrite=overwrite, progress=progress))


def states_header(table: str | Path) -> dict[str, Any] | None:
    """Return the description of a table of states, or None for any other table.

    Parameters
    ----------
    table : str or Path
        Path or URI of a file or folder.
    """
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


def _header(rows: LargeTable, kind: str) -> dict[str, Any]:
    by, features, z = rows.names
    return {"kind": kind, "by": by, "features": features, "z": z, "model": model_identity(rows.model)}


def _rows_input(rows: LargeTable, function: Any, part_size: int, **options: Any) -> Input:
    return Input(cut(rows.files, part_size), rows.columns, function, rows.by, rows.nested, rows.types, **options)


def _states_input(table: str | Path, function: Any) -> Input:
    parts = cut(list_files(table), 1 << 15, lambda group: group.num_rows)
    names = File(parts[0].file).schema.names
    return Input(parts, names, function, names[0])


def _same(table: Any) -> Any:
    return table


def _job(inputs: list[Input], reduce: Any, output: str | Path, header: dict[str, Any], head: Any = None) -> Job:
    """A job, with the schemas of its tables found by running it on the first rows."""
    if head is None:
        head = File(inputs[0].parts[0].file).head(inputs[0].columns)
    middle = inputs[0].function(head)
    result = middle if reduce is None else reduce(middle)
    parts = [part for input in inputs for part in input.parts]
    stamps = file_stamps(list(dict.fromkeys(part.file for part in parts)))
    cuts = json.dumps([[part.file, part.groups] for part in parts])
    manifest = header | {"format": 3, "tables": stamps, "parts": zlib.crc32(cuts.encode())}
    schema = result.schema.with_metadata({KEY: json.dumps(header)})
    return Job(inputs, reduce, str(output), manifest, middle.schema, schema)


def _check_header(wanted: dict[str, Any], found: dict[str, Any], path: str | Path, names: list[str]) -> None:
    for name in names:
        if found[name] != wanted[name]:
            if name == "model":
                raise ValueError(f"{path} was pooled with another model: its states do not fit this one.")
            raise ValueError(f"{path} was pooled with {name} {found[name]!r}, found {wanted[name]!r} here.")


def _run(runner: Any, job: Job) -> dict[str, Any]:
    start = time.perf_counter()
    facts = runner.run(job)
    return {"output": job.output, **facts, "seconds": round(time.perf_counter() - start, 3)}
