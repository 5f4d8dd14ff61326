"""From the records of single runs to the rows of the report: means over seeds beside the paper's numbers."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ..record import Record
from ..registry import experiment

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
        paper = experiment(name).published.get((method, data, metric))
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
