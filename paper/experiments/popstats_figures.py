"""Both halves of the paper's figure of population statistics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..record import Record

LEARNED = {"SDM": "tab:orange", "Deep Sets": "tab:blue", "Ours": "tab:purple"}
COLOURS = LEARNED | {"Gaussian plug-in": "tab:green", "Bayes": "0.4"}


def found_against_true(records: Sequence[Record]) -> Figure:
    """A panel a task: the answers of the first seed for 200 test sets, at N = 1024 (quick form: the largest N)."""
    figure, panels = _panels(records)
    for record in records:
        if record.method not in LEARNED or record.seed != records[0].seed:
            continue
        for task, _, part in _parts(record):
            if "y" in part["extra"]:
                points = part["extra"]["y"], part["extra"]["found"]
                panels[task].plot(*points, ".", ms=3, alpha=0.6, color=COLOURS[record.method], label=record.method)
    for task, panel in panels.items():
        true = [y for line in panel.lines for y in (min(line.get_xdata()), max(line.get_xdata()))] or [0, 1]
        panel.plot([min(true), max(true)], [min(true), max(true)], color="0.5", lw=0.8)
        panel.set(title=task, xlabel="true", ylabel="found")
    _legend(panels)
    return figure


def error_against_sets(records: Sequence[Record]) -> Figure:
    """A panel a task, both axes logarithmic: the mean over seeds for every N."""
    figure, panels = _panels(records)
    found: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        for task, n, part in _parts(record):
            for measure in part["measures"]:
                found[task, record.method][n].append(measure["value"])
    for (task, method), errors in found.items():
        sizes = sorted(errors)
        style = "o-" if method in LEARNED else "--"
        mean = [np.mean(errors[n]) for n in sizes]
        panels[task].loglog(sizes, mean, style, ms=3.5, color=COLOURS[method], label=method, base=2)
    for task, panel in panels.items():
        panel.set(title=task, xlabel="sets N", ylabel="mean squared error", yscale="log")
    _legend(panels)
    return figure


def _parts(record: Record) -> Iterator[tuple[str, int, dict]]:
    for name, part in record.parts.items():
        task, n = name.split(" N=")
        yield task, int(n), part


def _panels(records: Sequence[Record]) -> tuple[Figure, dict]:
    from matplotlib.figure import Figure

    tasks = list(dict.fromkeys(task for record in records for task, _, _ in _parts(record)))
    figure = Figure(figsize=(2.6 * max(len(tasks), 1), 2.8), layout="constrained")
    axes = figure.subplots(1, max(len(tasks), 1), squeeze=False)[0]
    return figure, dict(zip(tasks, axes, strict=False))


def _legend(panels: dict) -> None:
    if panels:
        next(iter(panels.values())).legend(fontsize="x-small")
