"""What a run leaves behind: one JSON for each method and seed, whole after every part."""

from __future__ import annotations

import json
import platform
import re
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from .experiment import Experiment, Outcome

PACKAGES = ("deepsets", "torch", "numpy", "scipy", "scikit-learn")


@dataclass
class Record:
    """Everything one method found with one seed; `parts[name]` holds its measures, its extra and its seconds.

    `core_seconds` are those that cores worked for it: a run that waits for others does not add to them.
    """

    experiment: str
    full: bool
    method: str
    seed: int
    data: str
    reductions: list[str]
    date: str = ""  # when the last part was done; the day alone in records of old
    python: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, experiment: Experiment, full: bool, method: str, seed: int) -> Self:
        """An empty record."""
        return cls(experiment.name, full, method, seed, experiment.data(full), experiment.reductions(full))

    @property
    def file(self) -> Path:
        """Where it lies below the folder of results: `digits-text-full/deep-sets-0.json`."""
        return Path(f"{self.experiment}-{self.protocol}") / f"{slug(self.method)}-{self.seed}.json"

    @property
    def protocol(self) -> str:
        """As in the report: "full" or "quick"."""
        return "full" if self.full else "quick"

    def add(self, part: str, outcome: Outcome, seconds: float, core_seconds: float) -> None:
        """Puts what was found beside what is there already."""
        times = {"seconds": round(seconds, 2), "core_seconds": round(core_seconds, 2)}
        measures = [measure._asdict() for measure in outcome.measures]
        self.parts[part] = {**times, "measures": measures, "extra": outcome.extra}

    def save(self, folder: Path) -> Path:
        """Writes to a temporary name and renames, so that a record is whole or not there."""
        self.date, self.python = datetime.now(UTC).isoformat(timespec="seconds"), platform.python_version()
        self.versions = {package: version(package) for package in PACKAGES}
        path = folder / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)
        return path

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads what `save` wrote."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (json.JSONDecodeError, TypeError) as error:
            raise ValueError(
                f"{path} is not the record of a run: {error}. Remove it, and run the method again."
            ) from None


def records(folder: Path) -> list[Record]:
    """Every record below a folder of results, in the order of their names."""
    return [Record.load(path) for path in sorted(folder.glob("*-full/*.json")) + sorted(folder.glob("*-quick/*.json"))]


def slug(name: str) -> str:
    """A name that a file may have.

    >>> slug("NN-max-con"), slug("rotation N=128")
    ('nn-max-con', 'rotation-n-128')
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
