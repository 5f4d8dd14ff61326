"""Rows of the report: means over seeds beside the published numbers, and tables of them."""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..experiment import get_experiment
from ..runner import Record

LOWER_IS_BETTER = {"mse", "median-rank", "scatter"}
NO_BEST = {"standard error"}  # says how certain a number is, not how good


@dataclass(frozen=True)
class Row:
    """One number of the report.

    Attributes
    ----------
    experiment, data, method, metric : str
        What was measured.
    value, std : float
        Mean and sample deviation over seeds; `std` is None for one seed.
    seeds : int
        Number of seeds.
    paper : float or None
        The published number.
    protocol : str
        "full" or "quick".
    reductions : list of str
        What differs from the paper's protocol.
    seconds : float
        Mean duration of a run.

    """

    experiment: str
    data: str
    method: str
    metric: str
    value: float
    std: float | None
    seeds: int
    paper: float | None
    protocol: str
    reductions: list[str]
    seconds: float


def rows(found: Iterable[Record]) -> list[Row]:
    """Return one row per experiment, protocol, data, metric and method, in the order of the records."""
    groups: dict[tuple[str, str, str, str, str], list[tuple[float, float, Record]]] = defaultdict(list)
    for record in found:
        for part in record.parts.values():
            for m in part["measures"]:
                key = (record.experiment, record.protocol, m["data"], m["metric"], record.method)
                groups[key].append((m["value"], part["seconds"], record))
    out = []
    for (name, protocol, data, metric, method), entries in groups.items():
        values = [value for value, _, _ in entries]
        std = statistics.stdev(values) if len(values) > 1 else None
        paper = get_experiment(name).published.get((method, data, metric))
        seconds = statistics.fmean(seconds for _, seconds, _ in entries)
        mean, reductions = statistics.fmean(values), entries[0][2].reductions
        out.append(Row(name, data, method, metric, mean, std, len(values), paper, protocol, reductions, seconds))
    return out


def best(row: Iterable[Row]) -> float:
    """Return the best value among rows of one metric; NaN for a metric that has none."""
    row = list(row)
    if row[0].metric in NO_BEST:
        return math.nan
    choose = min if row[0].metric in LOWER_IS_BETTER else max
    return choose(r.value for r in row)


def number(value: float, digits: int = 3) -> str:
    """Return a number with so many significant digits, as a table shows it.

    >>> [number(v) for v in (0.9312, 1.0, 54.71, 0.000171, 8520.0)]
    ['0.931', '1.00', '54.7', '0.000171', '8520']
    >>> number(0.00388, 2)
    '0.0039'
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= 1000:
        return f"{value:.0f}"
    if abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:.{max(0, digits - 1 - math.floor(math.log10(abs(rounded))))}f}"


class Cell(NamedTuple):
    """A measured number, the paper's (or ""), and whether ours is the best of its line."""

    ours: str
    paper: str
    best: bool


class Table(NamedTuple):
    """One line per data set and metric, one column per method; a cell is None where nothing was measured."""

    methods: list[str]
    lines: list[tuple[str, str, list[Cell | None]]]


def table(rows: Sequence[Row], methods: Sequence[str]) -> Table:
    """Arrange the rows of one experiment and protocol.

    Columns are in the order of `methods`, then methods of other files; lines are in natural order, M=5 before M=10.
    """
    present = list(dict.fromkeys(row.method for row in rows))
    columns = [m for m in methods if m in present] + [m for m in present if m not in methods]
    metrics = list(dict.fromkeys(row.metric for row in rows))
    lines = []
    cells = dict.fromkeys((row.data, row.metric) for row in rows)
    for data, metric in sorted(cells, key=lambda cell: (_natural(cell[0]), metrics.index(cell[1]))):
        here = {row.method: row for row in rows if (row.data, row.metric) == (data, metric)}
        top = best(here.values())
        lines.append((data, metric, [_cell(here[m], top) if m in here else None for m in columns]))
    return Table(columns, lines)


def _natural(text: str) -> list[tuple[str, int]]:
    return [(word, int(digits or -1)) for word, digits in re.findall(r"(\D*)(\d*)", text)]


def _cell(row: Row, top: float) -> Cell:
    spread = "" if row.std is None else f" ± {number(row.std, 2)}"
    return Cell(number(row.value) + spread, "" if row.paper is None else number(row.paper), row.value == top)


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    every = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in every)


def markdown_table(made: Table) -> str:
    """Return a table of methods as Markdown: the best of a line bold, the paper's number in brackets."""

    def text(cell: Cell | None) -> str:
        if cell is None:
            return ""
        ours = f"**{cell.ours}**" if cell.best else cell.ours
        return ours + (f" ({cell.paper})" if cell.paper else "")

    return markdown(["data", "metric", *made.methods], [[d, m, *map(text, cells)] for d, m, cells in made.lines])
