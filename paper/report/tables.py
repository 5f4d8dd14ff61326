"""Rows of the report: means over seeds beside the published numbers, and tables of them."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..experiment import get_experiment
from ..runner import Record

LOWER_IS_BETTER = {"mse", "median-rank", "scatter"}
NO_BEST = {"standard error"}  # says how sure a number is, not how good


@dataclass(frozen=True)
class Row:
    """One number of the report. `std` is the sample deviation over seeds, None for one seed; `seconds` a run's mean."""

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
    """One row for each experiment, protocol, data, metric and method, in the order of the runs."""
    groups: dict[tuple[str, str, str, str, str], list[tuple[float, float, Record]]] = defaultdict(list)
    for record in found:
        for part in record.parts.values():
            for m in part["measures"]:
                key = (record.experiment, record.protocol, m["data"], m["metric"], record.method)
                groups[key].append((m["value"], part["seconds"], record))
    out = []
    for (name, protocol, data, metric, method), entries in groups.items():
        values = [value for value, _, _ in entries]
        paper = get_experiment(name).published.get((method, data, metric))
        std = statistics.stdev(values) if len(values) > 1 else None
        seconds = statistics.fmean(seconds for _, seconds, _ in entries)
        reductions = entries[0][2].reductions
        out.append(
            Row(
                name,
                data,
                method,
                metric,
                statistics.fmean(values),
                std,
                len(values),
                paper,
                protocol,
                reductions,
                seconds,
            )
        )
    return out


def best(row: Iterable[Row]) -> float:
    """The best value among rows of one metric; NaN for one that has none."""
    row = list(row)
    if row[0].metric in NO_BEST:
        return math.nan
    choose = min if row[0].metric in LOWER_IS_BETTER else max
    return choose(r.value for r in row)


def number(value: float) -> str:
    """Three digits that matter, the way a table wants them.

    >>> [number(v) for v in (0.9312, 1.0, 54.71, 0.000171, 8520.0)]
    ['0.931', '1', '54.7', '0.000171', '8520']
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{float(f'{value:.3g}'):.6g}" if abs(value) >= 1e-4 else f"{value:.2e}"


class Cell(NamedTuple):
    """What we measured, what the paper printed (or ""), and whether ours is the best of its line."""

    ours: str
    paper: str
    best: bool


class Table(NamedTuple):
    """One line for each data set and metric, one column for each method; a cell is None where nothing was measured."""

    methods: list[str]
    lines: list[tuple[str, str, list[Cell | None]]]


def table(rows: Sequence[Row], methods: Sequence[str]) -> Table:
    """Arranges the rows of one experiment and protocol; `methods` gives the order of the columns."""
    columns = [method for method in methods if any(row.method == method for row in rows)]
    lines = []
    for data, metric in dict.fromkeys((row.data, row.metric) for row in rows):
        here = {row.method: row for row in rows if (row.data, row.metric) == (data, metric)}
        top = best(here.values())
        lines.append((data, metric, [_cell(here[m], top) if m in here else None for m in columns]))
    return Table(columns, lines)


def _cell(row: Row, top: float) -> Cell:
    spread = "" if row.std is None else f" ± {number(row.std)}"
    return Cell(number(row.value) + spread, "" if row.paper is None else number(row.paper), row.value == top)


def markdown(made: Table) -> str:
    """A Markdown table: the best of a line bold, the paper's number in brackets."""

    def text(cell: Cell | None) -> str:
        if cell is None:
            return ""
        ours = f"**{cell.ours}**" if cell.best else cell.ours
        return ours + (f" ({cell.paper})" if cell.paper else "")

    head = ["data", "metric", *made.methods]
    lines = [head, ["---"] * len(head)] + [[data, metric, *map(text, cells)] for data, metric, cells in made.lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
