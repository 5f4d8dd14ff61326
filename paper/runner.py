"""Running an experiment, and the records that runs leave: one JSON per method and seed, complete after every part."""

import json
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, Self

import torch

from deepsets.files import atomic_path

from .experiment import Experiment, Outcome, Trial, get_experiment
from .models import save_model
from .training import supports_bfloat16

PACKAGES = ("deepsets", "torch", "numpy", "scipy", "scikit-learn")


@dataclass
class Record:
    """Results of one method with one seed; `parts[name]` holds its measures, extra, settings, threads and seconds.

    `processor` names the instructions that torch uses, and whether bfloat16 is among them. `core_seconds` are CPU
    seconds: a run that waits for other processes does not add to them. Both times of a part that was `resumed` are
    those of its last stretch.
    """

    experiment: str
    full: bool
    method: str
    seed: int
    data: str
    reductions: list[str]
    date: str = ""  # when the last part was done; only the day in early records
    python: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, experiment: Experiment, full: bool, method: str, seed: int) -> Self:
        """Return an empty record."""
        return cls(experiment.name, full, method, seed, experiment.data(full), experiment.reductions(full))

    @property
    def file(self) -> Path:
        """Path below the folder of results, e.g. `digits-text-full/deep-sets-0.json`."""
        return Path(f"{self.experiment}-{self.protocol}") / f"{slug(self.method)}-{self.seed}.json"

    @property
    def protocol(self) -> str:
        """The protocol as in the report, "full" or "quick"."""
        return "full" if self.full else "quick"

    def add(self, part: str, outcome: Outcome, trial: Trial, seconds: float, core_seconds: float) -> None:
        """Add the outcome of a part, with everything needed to repeat it."""
        times = {"seconds": round(seconds, 2), "core_seconds": round(core_seconds, 2)}
        measures = [measure._asdict() for measure in outcome.measures]
        processor = torch.backends.cpu.get_cpu_capability() + " with bfloat16" * supports_bfloat16()
        facts = {"threads": torch.get_num_threads(), "processor": processor}
        facts |= {"commit": _commit(), "settings": trial.settings}
        self.parts[part] = {**times, **facts, "measures": measures, "extra": outcome.extra}

    def save(self, folder: Path) -> Path:
        """Write the record below the folder of results, completely or not at all."""
        self.date, self.python = datetime.now(UTC).isoformat(timespec="seconds"), platform.python_version()
        self.versions = {package: version(package) for package in PACKAGES}
        path = folder / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a record."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (json.JSONDecodeError, TypeError) as error:
            raise ValueError(
                f"{path} is not the record of a run: {error}. Remove it, and run the method again."
            ) from None


def records(folder: str | Path = "results") -> list[Record]:
    """Return every record below a folder of results, in the order of their file names."""
    folder = Path(folder)
    return [Record.load(path) for path in sorted(folder.glob("*-full/*.json")) + sorted(folder.glob("*-quick/*.json"))]


def slug(name: str) -> str:
    """Return a name that a file may have.

    >>> slug("NN-max-con"), slug("rotation N=128")
    ('nn-max-con', 'rotation-n-128')
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def run(
    name: str,
    folder: str | Path = "results",
    *,
    full: bool = False,
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    parts: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    models: str | Path | None = None,
    resume: bool = False,
    progress: bool = False,
    log: Callable[[str], None] = lambda line: None,
) -> list[Record]:
    """Run an experiment and write one JSON per method and seed below a folder.

    A part that has a result is not run again; remove the file to repeat it.

    Parameters
    ----------
    name, folder : str, path
        One of `paper.NAMES`, and the folder of results.
    full : bool, default=False
        The protocol of the paper, or a form that takes seconds.
    methods, seeds, parts : sequence, default=()
        Run only these; by default all of the experiment.
    settings : mapping, default=None
        Settings that replace those of the methods, e.g. `{"epochs": 200}`. Such a run is a row of its own,
        "Deep Sets (epochs=200)".
    models : path, optional
        Folder below which trained models are saved, one folder each, see `paper.load_model`.
    resume : bool, default=False
        Continue an interrupted part from its last checkpoint instead of starting it again.
    progress, log : bool, callable
        Show progress bars; called with one line per part.

    Returns
    -------
    list of Record

    """
    chosen, folder = get_experiment(name), Path(folder)
    label = ", ".join(f"{key}={value}" for key, value in (settings or {}).items())
    found = []
    _commit()  # before the work: the checkout may change while it is done
    every = chosen.parts(full)
    _check(methods, chosen.methods, f"{name} has no method {{!r}}")
    _check(parts, [*every, *chosen.optional] if full else every, f"{name} has no part {{!r}} in this form")
    # Seeds outside, so that every method has its first seed before any has its second.
    for seed, method in product(seeds or chosen.seeds(full), methods or chosen.methods):
        record = Record.of(chosen, full, f"{method} ({label})" if label else method, seed)
        if (folder / record.file).exists():
            before = Record.load(folder / record.file).parts
            record.parts = {part: done for part, done in before.items() if done["measures"]}
        for part in parts or every:
            line = " · ".join([name, record.method, f"seed {seed}"] + ([] if part == "all" else [part]))
            if part in record.parts:
                log(f"{line}: already done ({folder / record.file})")
                continue
            work = folder / ".work" / record.file.with_suffix("") / slug(part)
            resumed = resume and work.exists()
            if not resume:
                shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True, exist_ok=True)
            trial = Trial(full, seed, work, progress, dict(settings or {}))
            if models is not None:
                trial = replace(trial, keep=partial(_keep, Path(models), record, method, part, trial))
            start, work_start = time.perf_counter(), time.process_time()
            outcome = chosen.methods[method](trial, part)
            if unread := [key for key in trial.given if key not in trial.settings]:
                raise ValueError(f"{method} of {name} has no setting {unread[0]!r}.")
            if outcome.measures:
                record.add(part, outcome, trial, time.perf_counter() - start, time.process_time() - work_start)
                record.parts[part]["resumed"] = resumed
                record.save(folder)
            shutil.rmtree(work)
            log(f"{line}: {record.parts[part]['seconds']:.1f} s" if outcome.measures else f"{line}: does not apply")
        found.append(record)
    return found


def _keep(folder: Path, record: Record, method: str, part: str, trial: Trial, model: Any) -> None:
    """Save a trained model with what is needed to make it again."""
    name = slug(f"{record.experiment} {record.protocol} {record.method} {trial.seed} {'' if part == 'all' else part}")
    command = f'python -m paper run {record.experiment} --{record.protocol} --method "{method}" --seed {trial.seed}'
    command += "".join([f' --part "{part}"', *(f" --set {key}={value}" for key, value in trial.given.items())])
    facts = {"experiment": record.experiment, "method": method, "part": part, "full": trial.full, "seed": trial.seed}
    facts |= {"settings": trial.settings, "commit": _commit(), "command": f"{command} --models models"}
    save_model(model, folder / name, facts)


def _check(asked: Sequence[str], known: Iterable[str], problem: str) -> None:
    for name in asked:
        if name not in known:
            raise ValueError(f"{problem.format(name)}: it has {', '.join(known)}.")


@cache
def _commit(package: Path = Path(__file__).parent) -> str:
    """Return the commit of the code when first asked, "-dirty" where the code differs; "" outside a checkout.

    Results do not count: every run writes some.
    """

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(package), *arguments], capture_output=True, text=True, check=False)

    changed = git("diff", "--quiet", "HEAD", "--", ".", "../src").returncode == 1
    return git("rev-parse", "--short=12", "HEAD").stdout.strip() + "-dirty" * changed
