"""Finished steps of a job, each with the sizes and checksums of its files, so that an interrupted job is resumed."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..files import atomic_path
from ..io.storage import is_remote, resolve
from .jobs import Job

_DONE = "done.json"


@contextmanager
def Work(job: Job) -> Iterator[Path]:
    """Give the folder in which the steps of a job are kept until its output is complete.

    It is ``OUTPUT.parts`` beside a local output, and a folder for temporary files for a remote one. The same job finds
    the steps that an interrupted run has finished; the folder of another job is refused.
    """
    name = f"deepsets-{hashlib.sha256(job.output.encode()).hexdigest()[:16]}"
    path = Path(tempfile.gettempdir()) / name if is_remote(job.output) else Path(resolve(job.output)[1])
    folder = path.with_name(path.name + ".parts")
    file, wanted = folder / "job.json", json.loads(json.dumps(job.manifest))
    found = json.loads(file.read_text()) if file.is_file() else {}
    if found != wanted:
        if folder.exists() and any(folder.iterdir()) and not job.overwrite:
            differ = [name for name, value in wanted.items() if found.get(name) != value]
            raise ValueError(
                f"{folder} holds the steps of another, interrupted run (different: {', '.join(differ)}): delete it, "
                "or --overwrite."
            )
        shutil.rmtree(folder, ignore_errors=True)
        with atomic_path(file) as temporary:
            temporary.write_text(json.dumps(wanted, indent=1))
    try:
        yield folder
    except ValueError:  # an error in the tables: these steps are of no use
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def finish(folder: Path, **facts: int) -> None:
    """Record the files of a step with their sizes and checksums, and some numbers."""
    files = {file.name: _checksum(file) for file in sorted(folder.iterdir())}
    (folder / _DONE).write_text(json.dumps({**facts, "files": files}))


def finished(folder: Path, *, verify: bool = True) -> dict[str, Any] | None:
    """Return the record of a finished step, or None: a step with a missing or changed file is deleted."""
    try:
        facts = json.loads((folder / _DONE).read_text())
        if not verify or all(_checksum(folder / name) == wanted for name, wanted in facts["files"].items()):
            return facts
    except (OSError, ValueError, KeyError):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    return None


def _checksum(file: Path) -> list[int]:
    code = 0
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            code = zlib.crc32(block, code)
    return [file.stat().st_size, code]
