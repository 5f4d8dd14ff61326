"""Resumable work: a folder of finished steps, each with the size and checksum of its files."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import Any

from ..files import atomic_path
from .jobs import Job
from .storage import is_remote, resolve

_DONE = "done.json"


class Work:
    """Folder in which the steps of a job are kept until its output is complete.

    It is ``OUTPUT.parts`` beside a local output, and a folder for temporary files for a remote one. The same job
    finds the steps that an interrupted run has finished; the folder of another job is refused.

    Parameters
    ----------
    job : Job
        The job. Its manifest identifies it.
    """

    def __init__(self, job: Job) -> None:
        if is_remote(job.output):
            name = hashlib.sha256(job.output.encode()).hexdigest()[:16]
            self.folder = Path(tempfile.gettempdir()) / f"deepsets-{name}.parts"
        else:
            self.folder = Path(resolve(job.output)[1] + ".parts")
        path, wanted = self.folder / "job.json", json.loads(json.dumps(job.manifest))
        if self.folder.exists():
            found = json.loads(path.read_text()) if path.is_file() else {}
            if found == wanted:
                return
            if any(self.folder.iterdir()) and not job.overwrite:
                differ = [name for name, value in wanted.items() if found.get(name) != value]
                raise ValueError(
                    f"{self.folder} holds the steps of another, interrupted run (different: {', '.join(differ)}): "
                    "delete it, or --overwrite."
                )
            shutil.rmtree(self.folder)
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(wanted, indent=1))

    def __enter__(self) -> Work:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None or isinstance(error, ValueError):  # an error in the tables: these steps are of no use
            shutil.rmtree(self.folder, ignore_errors=True)


def write_done(folder: Path, **facts: int) -> None:
    """Record the files of a finished step with their sizes and checksums.

    Parameters
    ----------
    folder : Path
        Folder of the step.
    **facts : int
        Numbers to be stored with it.
    """
    files = {file.name: _checksum(file) for file in sorted(folder.iterdir())}
    (folder / _DONE).write_text(json.dumps({**facts, "files": files}))


def read_done(folder: Path, *, verify: bool = True) -> dict[str, Any] | None:
    """Return the facts of a finished step, or None if it is not finished or one of its files has changed.

    A damaged step is deleted, so that it is done again.

    Parameters
    ----------
    folder : Path
        Folder of the step.
    verify : bool, default=True
        Compare the sizes and checksums of the files.
    """
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
