"""Work in parts that survives a crash: what is finished has its final name, the rest is done again."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..io import check_output, writer
from ..io.files import arrow

MANIFEST = "_manifest.json"  # readers of folders of Parquet files pass over names that begin so
OUT = "0.parquet"  # the table in a part of the output
_COUNTS = "counts.json"
_FORMAT = 2


@contextmanager
def finished(path: Path) -> Iterator[Path]:
    """A temporary folder that gets its final name at the end; where that is taken, somebody else was quicker.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with finished(Path(folder) / "part-0") as new:
    ...         _ = (new / "text").write_text("done")
    ...     [file.name for file in Path(folder).rglob("*")]
    ['part-0', 'text']
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.iterdir():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        try:
            temporary.rename(path)
        except OSError:
            if not path.is_dir():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


class Work:
    """The folder `OUTPUT.parts`, in which an output grows. identity: what a run must share with the one it takes up.

    The output itself appears when it is complete, and the folder then goes. So where the folder stands, with its
    `_manifest.json`, the run is not complete; the same call again does what is missing.
    """

    def __init__(self, output: Path, identity: dict[str, Any], *, overwrite: bool) -> None:
        self.output = output
        self.folder = output.with_name(output.name + ".parts")
        if output.suffix:
            check_output(output, overwrite)
        else:
            _check_folder(output, overwrite)
        self.identity = json.loads(json.dumps({"format": _FORMAT, **identity}))
        self._take_up(overwrite)

    def _take_up(self, overwrite: bool) -> None:
        path = self.folder / MANIFEST
        if self.folder.exists():
            theirs = json.loads(path.read_text()) if path.is_file() else None
            if theirs == self.identity:
                for left in self.folder.glob(".*.tmp"):
                    shutil.rmtree(left, ignore_errors=True)
                return
            if not overwrite and (theirs is not None or any(self.folder.iterdir())):
                what = [name for name, value in self.identity.items() if (theirs or {}).get(name) != value]
                raise ValueError(
                    f"{self.folder} holds the parts of another run, which did not come to its end (other: "
                    f"{', '.join(what)}): delete it, or --overwrite."
                )
            shutil.rmtree(self.folder)
        self.folder.mkdir()
        temporary = self.folder / f"{MANIFEST}.tmp"
        temporary.write_text(json.dumps(self.identity, indent=1))
        temporary.replace(path)

    def __enter__(self) -> Work:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, ValueError):  # the tables must be mended first: these parts will never become whole
            shutil.rmtree(self.folder, ignore_errors=True)

    def missing(self, kind: str, count: int) -> list[int]:
        """The numbers below `count` that are not finished."""
        return [number for number in range(count) if not part_path(self.folder, kind, number).is_dir()]

    def assemble(self, count: int) -> dict[str, Any]:
        """The parts `out` as the output, which appears as a whole; then the folder goes. Says what it holds."""
        pa = arrow()
        folders = [part_path(self.folder, "out", number) for number in range(count)]
        counts = [json.loads((folder / _COUNTS).read_text()) for folder in folders]
        new = self.folder / ".complete"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        files = [folder / OUT for folder in folders]
        if not self.output.suffix:
            for number, file in enumerate(files):
                _link(file, new / f"part-{number:06d}.parquet")
            (new / MANIFEST).write_text(json.dumps(self.identity | {"complete": True}, indent=1))
            _put(new, self.output)
        elif self.output.suffix in (".parquet", ".pq"):
            if count == 1:
                _link(files[0], new / OUT)
            else:
                with parquet_writer(new / OUT, pa.parquet.read_schema(files[0])) as sink:
                    for table in _tables(files):
                        sink.write_table(table)
            (new / OUT).replace(self.output)
        else:
            with writer(self.output) as write:
                for table in _tables(files):
                    write(table)
        shutil.rmtree(self.folder, ignore_errors=True)
        return {"output": str(self.output), **{name: sum(c[name] for c in counts) for name in ("sets", "members")}}


def part_path(folder: Path, kind: str, number: int) -> Path:
    """Where a finished part stands."""
    return folder / f"{kind}-{number:06d}"


def _link(file: Path, new: Path) -> None:
    """A second name, or a copy: the part keeps its own, so that a crash right now leaves a run that can be taken up."""
    try:
        new.hardlink_to(file)
    except OSError:
        shutil.copyfile(file, new)


def _tables(files: list[Path]) -> Iterator[Any]:
    """All tables, a row group at a time; at least an empty one."""
    for number, path in enumerate(files):
        with arrow().parquet.ParquetFile(path) as file:
            if number == 0:
                yield file.schema_arrow.empty_table()
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)


def parquet_writer(path: Path, schema: Any) -> Any:
    """Vectors of numbers hardly ever repeat: a dictionary of them would cost ten times the writing."""
    types = arrow().types
    plain = [field.name for field in schema if not types.is_fixed_size_list(field.type)]
    return arrow().parquet.ParquetWriter(path, schema, use_dictionary=plain)


def write_counts(folder: Path, sets: int, members: int) -> None:
    """What a part of the output holds."""
    (folder / _COUNTS).write_text(json.dumps({"sets": sets, "members": members}))


def stamps(files: list[Path]) -> list[tuple[str, int, int]]:
    """Names, sizes and times of files: another run over changed files is another run."""
    return [(str(file.absolute()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _put(new: Path, output: Path) -> None:
    """A folder to its place; one of an earlier run makes room."""
    if output.exists():
        old = output.with_name(f".{output.name}.{uuid.uuid4().hex[:12]}.old")
        output.rename(old)
        new.rename(output)
        shutil.rmtree(old)
    else:
        new.rename(output)


def _check_folder(output: Path, overwrite: bool) -> None:
    if output.exists() and not (overwrite and (output / MANIFEST).is_file()):
        hint = "choose another path" if overwrite else "choose another path, or --overwrite"
        what = "exists, and is no output of this command" if overwrite else "exists"
        raise ValueError(f"{output} {what}: {hint}.")
    if not output.absolute().parent.is_dir():
        raise ValueError(f"the folder {output.absolute().parent} does not exist.")
