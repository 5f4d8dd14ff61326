"""The scoreboard: headline rows beside the paper's numbers, and which claims of the paper hold.

Everything is computed from the rows of the report. A claim whose rows have not been measured is "not tested".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from .tables import LOWER_IS_BETTER, Row, number


class Headline(NamedTuple):
    """A headline row of the paper: what was measured, and the methods that stand for the re-run and our best.

    Parameters
    ----------
    label : str
        What is measured, e.g. "ModelNet40, 1000 points, accuracy".
    data, metric : str
        The cell of the experiment's table.
    paper : float, optional
        The paper's number where it belongs to other data than the cell's; by default the published one.
    faithful, best : str
        Methods of the re-run and of our best.

    """

    label: str
    data: str
    metric: str
    paper: float | None = None
    faithful: str = "Deep Sets"
    best: str = "Ours"


class Verdict(NamedTuple):
    """Whether a claim holds (None: not tested), and the numbers that decide it."""

    holds: bool | None
    why: str


class Scores:
    """Means of one experiment, looked up by method, data and metric; NaN where nothing was measured."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)
        self._rows = {(row.method, row.data, row.metric): row for row in self.rows}

    def __call__(self, method: str, data: str, metric: str) -> float:
        """Return the mean over seeds."""
        row = self._rows.get((method, data, metric))
        return math.nan if row is None else row.value

    def uncertain(self, one: str, other: str, data: str, metric: str) -> bool:
        """Return whether two means differ by less than their deviations over seeds, or have no deviations."""
        rows = [self._rows[method, data, metric] for method in (one, other)]
        spread = [row.std for row in rows if row.std is not None]
        return not spread or abs(rows[0].value - rows[1].value) < sum(spread)

    def better(self, one: float, other: float, metric: str) -> bool:
        """Return whether one value of a metric is better than another."""
        return one < other if metric in LOWER_IS_BETTER else one > other


class Claim(NamedTuple):
    """A claim of the paper, in its words or nearly so, and how the rows decide it."""

    text: str
    check: Callable[[Scores], Verdict]


Cell = tuple[str, str]  # data, metric


def beats(method: str, others: Sequence[str], cells: Sequence[Cell]) -> Callable[[Scores], Verdict]:
    """Return the check that a method is better than all others in all cells; the reason names the exceptions."""

    def check(scores: Scores) -> Verdict:
        found, lost, doubt = [], [], 0
        for data, metric in cells:
            mine = scores(method, data, metric)
            for other in others:
                theirs = scores(other, data, metric)
                if math.isnan(mine) or math.isnan(theirs):
                    continue
                doubt += scores.uncertain(method, other, data, metric)
                line = f"{data} {metric}: {method} {number(mine)}, {other} {number(theirs)}"
                found.append(line)
                if not scores.better(mine, theirs, metric):
                    lost.append(line)
        count = len(found)
        if not count:
            return Verdict(None, "not measured on this data")
        weak = f" ({doubt} within the deviation over seeds, or of one seed each)" if doubt else ""
        if lost:
            return Verdict(False, f"not in {len(lost)} of {count} comparisons{weak}; {'; '.join(lost[:3])}")
        return Verdict(True, f"in all {count} comparisons{weak}; {'; '.join(found[:3])}")

    return check


def reaches(method: str, data: str, metric: str, value: float) -> Callable[[Scores], Verdict]:
    """Return the check that a method is at least as good as a value."""

    def check(scores: Scores) -> Verdict:
        mine = scores(method, data, metric)
        if math.isnan(mine):
            return Verdict(None, "not measured on this data")
        holds = mine == value or scores.better(mine, value, metric)
        return Verdict(holds, f"{data} {metric}: {number(mine)}, the paper {number(value)}")

    return check


class Line(NamedTuple):
    """A line of the scoreboard, as text; `level` says whether the re-run is at least as good as the paper."""

    experiment: str
    label: str
    paper: str
    faithful: str
    best: str
    level: bool | None


def scoreboard(title: str, headlines: Sequence[Headline], rows: Sequence[Row]) -> list[Line]:
    """Return the lines of one experiment that have a measured number."""
    scores, lines = Scores(rows), []
    cells = {(row.method, row.data, row.metric): row for row in rows}
    for head in headlines:
        faithful, best = (cells.get((m, head.data, head.metric)) for m in (head.faithful, head.best))
        if faithful is None and (best is None or head.paper is not None):
            continue
        published = [row.paper for row in (faithful,) if row is not None and row.paper is not None]
        paper = published[0] if head.paper is None and published else head.paper
        level = None
        if faithful is not None and published:
            level = faithful.value == published[0] or scores.better(faithful.value, published[0], head.metric)
        other = "" if head.paper is None else " (other data)"
        text = "–" if paper is None else number(paper) + other
        lines.append(Line(title, head.label, text, _text(faithful), _text(best), level))
    return lines


def verdicts(claims: Sequence[Claim], rows: Sequence[Row]) -> list[tuple[str, Verdict]]:
    """Return each claim with its verdict."""
    scores = Scores(rows)
    return [(claim.text, claim.check(scores)) for claim in claims]


def word(holds: bool | None) -> str:
    """Return a verdict as text."""
    return "not tested" if holds is None else "holds" if holds else "fails"


def _text(row: Row | None) -> str:
    if row is None:
        return "–"
    return number(row.value) + ("" if row.std is None else f" ± {number(row.std, 2)}")
