"""What an experiment of the paper is: data, methods, protocol, and the numbers that were published."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .record import Record


@dataclass(frozen=True)
class Trial:
    """What one method is asked to do: `folder` is its own, for checkpoints; it is removed when the part is done."""

    full: bool
    seed: int
    folder: Path
    progress: bool = False


class Measure(NamedTuple):
    """One number: `Measure("M=50", "accuracy", .93)`."""

    data: str
    metric: str
    value: float


@dataclass(frozen=True)
class Outcome:
    """What a method found on one part, and what a figure needs beside the numbers (JSON: lists, numbers, strings)."""

    measures: list[Measure]
    extra: dict[str, Any] = field(default_factory=dict)


Method = Callable[[Trial, str], Outcome]


@dataclass(frozen=True)
class Experiment:
    """One experiment: a `method(trial, part)` for each row of the paper's table, run on every part with every seed.

    A part is the piece of work that is never done twice ("rotation N=1024"); an experiment without pieces has the one
    part "all". `published[method, data, metric]` is the paper's number. The method "Deep Sets" follows the paper;
    "Ours" is the best we know; the others carry the paper's names. `reductions` says what differs from the
    paper, `notes` what differs between them.
    """

    name: str
    title: str
    section: str
    data: Callable[[bool], str]
    reductions: Callable[[bool], list[str]]
    methods: Mapping[str, Method]
    parts: Callable[[bool], Sequence[str]] = lambda full: ("all",)
    seeds: Callable[[bool], Sequence[int]] = lambda full: (0, 1, 2) if full else (0,)
    published: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    notes: str = ""
    figures: Mapping[str, Callable[[Sequence[Record]], Figure]] = field(default_factory=dict)
    show_data: Collection[str] = ()  # figures that, in full runs, show data whose owners do not let it be passed on
