"""Predictions, states and expansions for tables of any size: checked, described as a job, and run by an engine."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..io.files import File, arrow
from .engine import Engine, open_engine
from .functions import Chain, Decode, Encode, Merge, Predict, Remove, negate
from .model import model_identity, set_model
from .partition import PART, ROW_NUMBER, Part, batches, cut, tables, with_own_names
from .storage import MANIFEST, check_output, files_of, footers, read_text, resolve, stamps

Progress = Callable[[int], None]
KEY = b"deepsets"


class Input(NamedTuple):
    """Tables that an engine reads, and the function it applies to them.

    Parameters
    ----------
    parts : list of Part
        Row groups of files.
    columns : list of str
        Columns to read.
    function : callable
        From a table to a table.
    by : str or None
        Column that names the set of a row; None: rows are sets, named by their number.
    nested : bool
        Whether a row is a set.
    merge : Merge or None
        Merges what `function` returns.
    direct : callable or None
        From a table of whole sets to final results: what an engine may use where it knows that sets are whole.
    whole : bool
        Whether the function needs whole sets; a part is then a file, and the rows of a set are neighbours in it.
    """

    parts: list[Part]
    columns: list[str]
    function: Any
    by: str | None
    nested: bool = False
    merge: Any = None
    direct: Any = None
    whole: bool = False


class Job(NamedTuple):
    """Work of an engine: read the inputs, apply their functions, group by set, reduce, write.

    Parameters
    ----------
    inputs : list of Input
        Tables and functions.
    reduce : callable or None
        From a table that has all rows of some sets to results; None: the functions give the results.
    output : str
        File or folder to write.
    manifest : dict
        Description of the output, stored with it.
    middle, result : pyarrow.Schema
        Schemas of the tables before and after `reduce`.
    overwrite : bool
        Whether an existing output is replaced.
    progress : callable or None
        Called with a number of members when these are done.
    """

    inputs: list[Input]
    reduce: Any
    output: str
    manifest: dict[str, Any]
    middle: Any
    result: Any
    overwrite: bool = False
    progress: Progress | None = None


def run_part(input: Input, part: Part) -> Iterator[Any]:
    """Read a part and yield the tables that the function of its input returns.

    Parameters
    ----------
    input : Input
        What to read, and the function.
    part : Part
        One of its parts.
    """
    rest = None
    for table in tables(part, input.columns, nested=input.nested, by=input.by):
        if not input.whole or input.nested:
            yield input.function(table)
            continue
        table = table if rest is None else arrow().concat_tables([rest, table])
        names = table[input.by]
        last = arrow().compute.not_equal(names, names[-1]).to_numpy()  # rows of the last set may follow
        end = int(np.flatnonzero(last)[-1]) + 1 if last.any() else 0
        rest = table.slice(end)
        if end:
            yield input.function(table.slice(0, end))
    if rest is not None and len(rest):
        yield input.function(rest)


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
        may stand anywhere; only models that look at all members at once (member estimators, sorting poolings) need
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
        What was written: output, number of sets and members, seconds.
    """
    net, runner = set_model(model), open_engine(engine)
    check_output(str(output), overwrite=overwrite)
    found = states_header(table)
    if found is not None:
        _check_header({"model": model_identity(net.model)}, found, table)
        states = _states_input(str(table), Decode(model))
        job = _job([states], None, output, {"kind": "predictions", "model": found["model"]})
    else:
        rows = _Table(net.model, table, by, features, z)
        direct = Predict(model, *rows.names)
        if net.whole_sets_only or not net.mergeable(direct.sets(rows.head)):
            rows.check_whole()
            input = rows.input(direct, 1 << 62)._replace(whole=True)
            job = _job([input], None, output, rows.header("predictions"), rows.head)
        else:
            input = rows.input(Encode(model, *rows.names), part_size)._replace(merge=Merge(model))
            if input.by is not None and input.parts[0].groups is not None:
                input = input._replace(direct=direct, parts=with_own_names(input.parts, input.by))
            reduce = Chain(Merge(model), Decode(model))
            job = _job([input], reduce, output, rows.header("predictions"), rows.head)
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
    """Write the state of every set of a table, to be updated with new rows later.

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
        What was written: output, number of sets and members, seconds.
    """
    if Path(output).suffix not in ("", ".parquet", ".pq"):
        raise ValueError(f"states are written as Parquet, a file or a folder; found {output}.")
    if remove and merge is None:
        raise ValueError("remove=True needs merge, the states from which members are removed.")
    net, runner = set_model(model), open_engine(engine)
    check_output(str(output), overwrite=overwrite)
    rows = _Table(net.model, table, by, features, z)
    header = rows.header("states")
    encode = Encode(model, *rows.names)
    inputs = [rows.input(Chain(encode, negate) if remove else encode, part_size)._replace(merge=Merge(model))]
    if merge is not None:
        old = states_header(merge)
        if old is None:
            raise ValueError(f"{merge} does not hold states: wanted an output of pool (`deepsets pool`).")
        _check_header({name: header[name] for name in ("by", "features", "z", "model")}, old, merge)
        inputs.append(_states_input(str(merge), Chain()))
    if remove:
        example = encode(rows.head)
        Remove(model)(example, example)  # poolings that cannot remove raise here
    reduce = Remove(model) if remove else Merge(model)
    job = _job(inputs, Merge(model), output, header, rows.head)
    return _run(runner, job._replace(reduce=reduce, overwrite=overwrite, progress=progress))


def states_header(table: str | Path) -> dict[str, Any] | None:
    """Return the description of a table of states, or None for any other table.

    Parameters
    ----------
    table : str or Path
        Path or URI of a file or folder.
    """
    if Path(str(table)).suffix in (".parquet", ".pq"):
        system, path = resolve(table)
        try:
            text = (arrow().parquet.read_schema(path, filesystem=system).metadata or {}).get(KEY)
        except (arrow().ArrowException, OSError):
            return None
    else:
        text = read_text(f"{table}/{MANIFEST}")
    found = None if text is None else json.loads(text)
    return found if found is not None and found["kind"] == "states" else None


class _Table:
    """Rows of sets in files, checked against a model before any work."""

    def __init__(self, model: Any, table: str | Path, by: str | None, features: Any, z: Sequence[str]) -> None:
        self.model, self.files = model, files_of(table)
        self.parts = cut(self.files)
        if self.parts[0].groups is None:
            schema = File(self.files[0]).schema
        else:
            schema = footers([self.parts[0].file])[0].schema.to_arrow_schema()
        head = next(iter(batches(self.parts[0], schema.names, 100)))
        head = arrow().Table.from_batches([head])
        probe = Encode(model, by, features, z)
        source = probe.open(head)
        self.by, self.nested = source.columns.by, source.shape.nested
        self.columns = source.shape.inside(source.columns.all)
        self.head = head.select(self.columns)
        if self.by is None:
            self.head = self.head.add_column(0, ROW_NUMBER, [np.arange(len(head))])
        self.names = (self.by or ROW_NUMBER, source.columns.features, source.columns.z)
        self._check_files(schema)

    def _check_files(self, first: Any) -> None:
        """All files have the columns of the first, with names of one type."""
        if self.parts[0].groups is None:
            return
        files = list(dict.fromkeys(part.file for part in self.parts))  # those with rows
        for file, footer in zip(files, footers(files), strict=True):
            schema = footer.schema.to_arrow_schema()
            missing = [name for name in self.columns if name not in schema.names]
            if missing:
                raise ValueError(f"{file} has no column {missing[0]!r}, which {files[0]} has.")
            if self.by is not None and schema.field(self.by).type != first.field(self.by).type:
                raise ValueError(
                    f"column {self.by!r} holds {schema.field(self.by).type} in {file} and {first.field(self.by).type} "
                    f"in {files[0]}: names of sets must be of one type."
                )

    def check_whole(self) -> None:
        """Raise a ValueError if the rows of a set are not neighbours in one file."""
        if self.by is None or self.nested:
            return
        compute, seen = arrow().compute, []
        for part in cut(self.files, 1 << 62):
            last = None
            for batch in batches(part, [self.by], 1 << 17):
                names = batch.column(0)
                change = compute.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False)
                starts = np.concatenate([[last is None or names[0] != last], change])
                seen.append(names.filter(arrow().array(starts)))
                last = names[-1]
        counts = arrow().chunked_array(seen).value_counts()
        twice = compute.index(compute.greater(counts.field("counts"), 1), True).as_py()
        if twice >= 0:
            raise ValueError(
                f"the rows of set {counts.field('values')[twice].as_py()!r} are not neighbours in one file: this model "
                f"needs all members of a set at once. Sort the table by {self.by!r} first."
            )

    def header(self, kind: str) -> dict[str, Any]:
        """The description of an output."""
        by, features, z = self.names
        return {"kind": kind, "by": by, "features": features, "z": z, "model": model_identity(self.model)}

    def input(self, function: Any, part_size: int) -> Input:
        return Input(cut(self.files, part_size), self.columns, function, self.by, self.nested)


def _states_input(table: str, function: Any) -> Input:
    parts = cut(files_of(table), 1 << 15, lambda group: group.num_rows)
    schema = footers([parts[0].file])[0].schema.to_arrow_schema()
    return Input(parts, schema.names, function, schema.names[0])


def _job(inputs: list[Input], reduce: Any, output: str | Path, header: dict[str, Any], head: Any = None) -> Job:
    """A job, with the schemas of its tables found by running it on the first rows."""
    if head is None:
        head = arrow().Table.from_batches([next(iter(batches(inputs[0].parts[0], inputs[0].columns, 100)))])
    middle = inputs[0].function(head)
    result = middle if reduce is None else reduce(middle)
    files = [file for input in inputs for file in dict.fromkeys(part.file for part in input.parts)]
    cuts = [[part.file, part.groups] for input in inputs for part in input.parts]
    manifest = header | {"format": 3, "tables": stamps(files), "parts": zlib.crc32(json.dumps(cuts).encode())}
    schema = result.schema.with_metadata({KEY: json.dumps(header)})
    return Job(inputs, reduce, str(output), manifest, middle.schema, schema)


def _check_header(wanted: dict[str, Any], found: dict[str, Any], path: str | Path) -> None:
    for name, value in wanted.items():
        if found[name] != value:
            if name == "model":
                raise ValueError(f"{path} was pooled with another model: its states do not fit this one.")
            raise ValueError(f"{path} was pooled with {name} {found[name]!r}, found {value!r} here.")


def _run(runner: Any, job: Job) -> dict[str, Any]:
    start = time.perf_counter()
    facts = runner.run(job)
    return {"output": job.output, **facts, "seconds": round(time.perf_counter() - start, 3)}
