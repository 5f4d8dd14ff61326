"""Rows of the report: means over seeds beside the published numbers, and tables of them as Markdown and HTML."""

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
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
    by_seed : dict of int to float
        The value of each seed.

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
    by_seed: dict[int, float] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Mean and deviation as a table shows them."""
        return number(self.value) if self.std is None else with_deviation(self.value, self.std)


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
        by_seed = {record.seed: value for value, _, record in entries}
        row = Row(name, data, method, metric, mean, std, len(values), paper, protocol, reductions, seconds, by_seed)
        out.append(row)
    return out


def number(value: float, digits: int = 3) -> str:
    """Return a number with so many significant digits, as a table shows it.

    >>> [number(v) for v in (0.9312, 1.0, 54.71, 0.000171, 8520.0)]
    ['0.931', '1.00', '54.7', '0.000171', '8520']
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{_decimals(value, digits)}f}"


def with_deviation(value: float, deviation: float) -> str:
    """Return a mean and its deviation with the same number of decimals.

    >>> [with_deviation(*pair) for pair in ((0.86137, 0.0039), (13.98, 0.046), (361.2, 36.1), (0.0002061, 2.5e-5))]
    ['0.861 ± 0.004', '13.98 ± 0.05', '361 ± 36', '0.000206 ± 0.000025']
    """
    if deviation == 0 or abs(value) < 1e-4:
        return f"{number(value)} ± {number(deviation, 2)}"
    decimals = max(_decimals(value, 3), min(_decimals(deviation, 1), _decimals(value, 4)))
    return f"{value:.{decimals}f} ± {deviation:.{decimals}f}"


def _decimals(value: float, digits: int) -> int:
    """Decimals that show so many significant digits of a number, none beyond the point for a large one."""
    rounded = abs(float(f"{value:.{digits}g}"))
    return max(0, digits - 1 - math.floor(math.log10(rounded))) if rounded else 0


class Cell(NamedTuple):
    """Text of a table, what stands smaller below it, and a mark: "best", "level", "holds", "fails", "not"."""

    text: str
    below: str = ""
    mark: str = ""


class Table(NamedTuple):
    """Column heads and lines of cells; `kind` is its class in the page."""

    head: list[str]
    lines: list[list[Cell]]
    kind: str = ""

    def markdown(self) -> str:
        """Return the table as Markdown: marked cells bold, what stands below in brackets."""

        def text(cell: Cell) -> str:
            bold = f"**{cell.text}**" if cell.mark not in ("", "level") else cell.text
            return (bold + (f" ({cell.below})" if cell.below else "")).replace("|", "\\|")

        every = [self.head, ["---"] * len(self.head), *([text(cell) for cell in line] for line in self.lines)]
        return "\n".join("| " + " | ".join(line) + " |" for line in every)

    def html(self) -> str:
        """Return the table as HTML, in a frame that scrolls."""

        def text(cell: Cell) -> str:
            below = f"<br><small>{escape(cell.below)}</small>" if cell.below else ""
            mark = f' class="{cell.mark}"' if cell.mark else ""
            return f"<td{mark}>{escape(cell.text)}{below}</td>"

        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.head)
        body, before = "", Cell("")
        for first, *rest in self.lines:  # a name that is that of the line above is not repeated
            body += f"<tr>{text(Cell('') if first == before else first)}{''.join(map(text, rest))}</tr>"
            before = first
        return (
            f'<div class="wide" tabindex="0"><table class="{self.kind}"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )


def method_table(rows: Sequence[Row], methods: Sequence[str]) -> Table:
    """Arrange the rows of one experiment and protocol: a line per data set and metric, a column per method.

    Columns are in the order of `methods`, then methods of other files; lines are in natural order, M=5 before M=10.
    """
    present = list(dict.fromkeys(row.method for row in rows))
    columns = [m for m in methods if m in present] + [m for m in present if m not in methods]
    metrics = list(dict.fromkeys(row.metric for row in rows))
    cells = {(row.data, row.metric, row.method): row for row in rows}
    order = sorted({key[:2] for key in cells}, key=lambda cell: (_natural(cell[0]), metrics.index(cell[1])))
    lines = []
    for data, metric in order:
        here = [cells.get((data, metric, method)) for method in columns]
        best = (min if metric in LOWER_IS_BETTER else max)(row.value for row in here if row is not None)
        line = [Cell(data), Cell(metric)]
        for row in here:
            paper = "" if row is None or row.paper is None else number(row.paper)
            mark = "best" if row is not None and row.value == best and metric not in NO_BEST else ""
            line.append(Cell("") if row is None else Cell(row.text, paper, mark))
        lines.append(line)
    return Table(["data", "metric", *columns], lines, "methods")


def _natural(text: str) -> list[tuple[str, int]]:
    return [(word, int(digits or -1)) for word, digits in re.findall(r"(\D*)(\d*)", text)]
