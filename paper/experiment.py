"""Definition of an experiment: data, methods, protocol, and the published numbers."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch

if TYPE_CHECKING:
    from .report.scoreboard import Claim, Headline
    from .runner import Record

NAMES = ("popstats", "digits-text", "digits-image", "clouds", "redshift", "odd-one-out", "concepts", "tags")
NOTES = Path(__file__).parent / "notes"
T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """One run of one method.

    Parameters
    ----------
    full : bool
        The protocol of the paper (True), or a form that takes seconds (False).
    seed : int
        Seed of everything random in this run.
    folder : Path
        Folder of this run alone, for checkpoints; it is removed when the part is done.
    progress : bool, default=False
        Whether to show a progress bar.
    given, settings : mapping
        Settings given by the user (`--set key=value`), and all that the method read with `choose`, for the record.
    keep : callable
        `keep(model)`: called with the trained model, which the runner saves where the user asked for it (`--models`).

    """

    full: bool
    seed: int
    folder: Path
    progress: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    keep: Callable[[Any], None] = lambda model: None

    def choose(self, **defaults: Any) -> SimpleNamespace:
        """Return the settings of a method: its defaults, replaced by those that the user gave.

        >>> trial = Trial(full=False, seed=0, folder=Path("."), given={"epochs": 200})
        >>> trial.choose(epochs=10, rate=1e-3)
        namespace(epochs=200, rate=0.001)
        >>> Trial(full=False, seed=0, folder=Path("."), given={"epoch": 200}).choose(epochs=10)
        Traceback (most recent call last):
        ValueError: this method has no setting 'epoch': it has epochs.
        """
        for name in self.given:
            if name not in defaults:
                raise ValueError(f"this method has no setting {name!r}: it has {', '.join(defaults)}.")
        chosen = {**defaults, **self.given}
        self.settings.update({k: getattr(v, "__name__", v) for k, v in chosen.items()})
        return SimpleNamespace(**chosen)

    def build(self, make: Callable[[], T]) -> T:
        """Build a network whose initial weights follow from the seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return make()


class Measure(NamedTuple):
    """One measured number, e.g. `Measure("M=50", "accuracy", 0.93)`."""

    data: str
    metric: str
    value: float


@dataclass
class Outcome:
    """Numbers that a method reached on one part, and what a figure needs beside them (lists, numbers, strings)."""

    measures: list[Measure]
    extra: dict[str, Any] = field(default_factory=dict)


Method = Callable[[Trial, str], Outcome]


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper: a `method(trial, part)` per row of its table, run on every part with every seed.

    Parameters
    ----------
    name, title, section : str
        Name on the command line, title in the report, section of the paper.
    methods : mapping of str to callable
        "Deep Sets" follows the paper; "Ours" is the best we know; the others have the paper's names.
    parts : callable
        `parts(full)`: pieces of work ("rotation N=1024"), each of which is run once; by default the one part "all".
    optional : collection of str
        Parts of the full protocol that `parts` lists only where their files are; asked for by name, a part whose files
        are missing is an error that says which.
    seeds : callable
        `seeds(full)`: by default three seeds for the full protocol.
    published : mapping
        `published[method, data, metric]` is the paper's number.
    figures : mapping of str to callable
        `figures[title](records)` draws a matplotlib figure.
    show_data : collection of str
        Figures that, in full runs, show data which must not be redistributed.
    networks : mapping of str to callable
        `networks[method](full, part)` builds the untrained network of a method, for `paper.load_model`.
    headlines, claims : sequence
        Rows of the scoreboard and claims of the paper; see `paper.report.scoreboard`.

    """

    name: str
    title: str
    section: str
    methods: Mapping[str, Method]
    parts: Callable[[bool], Sequence[str]] = lambda full: ("all",)
    optional: Collection[str] = ()
    seeds: Callable[[bool], Sequence[int]] = lambda full: (0, 1, 2) if full else (0,)
    published: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    figures: Mapping[str, Callable[[Sequence[Record]], Any]] = field(default_factory=dict)
    show_data: Collection[str] = ()
    networks: Mapping[str, Callable[[bool, str], torch.nn.Module]] = field(default_factory=dict)
    headlines: Sequence[Headline] = ()
    claims: Sequence[Claim] = ()

    @property
    def notes(self) -> list[str]:
        """How the methods differ, in paragraphs: the beginning of `paper/notes/NAME.md`."""
        return [" ".join(text.split()) for text in _prose(NOTES / f"{self.name}.md")[0].split("\n\n") if text.strip()]

    def data(self, full: bool) -> str:
        """Describe the data: the heading "Full: ..." or "Quick: ..." of the notes."""
        return self._protocol(full)[0]

    def reductions(self, full: bool) -> list[str]:
        """List what differs from the paper's protocol: the items below that heading."""
        return [" ".join(item.split()) for item in re.split(r"^- ", self._protocol(full)[1], flags=re.M)[1:]]

    def _protocol(self, full: bool) -> tuple[str, str]:
        name, found = "Full" if full else "Quick", _prose(NOTES / f"{self.name}.md")[1:]
        return dict(zip(found[::3], zip(found[1::3], found[2::3], strict=True), strict=True))[name]


def new_figure(width: float, height: float) -> Any:
    """Return an empty matplotlib figure of this size in inches; matplotlib is imported only here."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


@cache
def _prose(path: Path) -> list[str]:
    """Split notes at their headings: text, then protocol, description of the data and text below for each."""
    return re.split(r"^## (Full|Quick): (.*)$", path.read_text(encoding="utf-8"), flags=re.M)


_added: dict[str, dict[str, Method]] = {}


def add_method(experiment: str, name: str) -> Callable[[Method], Method]:
    """Add a method of your own to an experiment (decorator).

    Parameters
    ----------
    experiment : str
        One of `NAMES`.
    name : str
        Name of the row in tables and figures; it must not be one that the experiment has.

    Examples
    --------
    >>> with isolated():
    ...     @add_method("digits-text", "Always 27")
    ...     def always_27(trial, part):
    ...         return Outcome([Measure("M=5", "accuracy", 0.1)])
    ...     list(get_experiment("digits-text").methods)
    ['Deep Sets', 'LSTM', 'GRU', 'Always 27']

    """

    def decorate(method: Method) -> Method:
        if name in get_experiment(experiment).methods:
            raise ValueError(f"{experiment} already has a method {name!r}; choose another name.")
        _added.setdefault(experiment, {})[name] = method
        return method

    return decorate


@contextmanager
def isolated() -> Iterator[None]:
    """Forget the methods added within the context."""
    before = {name: dict(methods) for name, methods in _added.items()}
    try:
        yield
    finally:
        _added.clear()
        _added.update(before)


def load_methods(path: str | Path) -> None:
    """Run a Python file that adds methods with `add_method`."""
    count = sum(map(len, _added.values()))
    runpy.run_path(str(path))
    if sum(map(len, _added.values())) == count:
        raise ValueError(f"{path} adds no method: decorate a function with @paper.add_method(EXPERIMENT, NAME).")


def get_experiment(name: str) -> Experiment:
    """Return the experiment of that name, with methods that were added to it; its module is imported on demand.

    >>> get_experiment("digits")
    Traceback (most recent call last):
    ValueError: there is no experiment 'digits': the paper has popstats, digits-text, ...
    """
    if name not in NAMES:
        raise ValueError(f"there is no experiment {name!r}: the paper has {', '.join(NAMES)}.")
    found = import_module(f".experiments.{name.replace('-', '_')}", __package__).EXPERIMENT
    assert isinstance(found, Experiment)
    return replace(found, methods={**found.methods, **_added.get(name, {})})
