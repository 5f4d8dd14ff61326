"""The scoreboard: headline rows beside the paper's numbers, and which claims of the paper hold.

Everything is computed from the rows of the report. A claim whose rows have not been measured is "not tested".
"""

import math
import statistics
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

    @property
    def word(self) -> str:
        """The verdict as text."""
        return "not tested" if self.holds is None else "holds" if self.holds else "fails"


NOT_TESTED = Verdict(None, "not measured on this data")


class Scores:
    """Rows of one experiment, looked up by method, data and metric."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = {(row.method, row.data, row.metric): row for row in rows}

    def __call__(self, method: str, data: str, metric: str) -> float:
        """Return the mean over seeds; NaN where nothing was measured."""
        row = self.rows.get((method, data, metric))
        return math.nan if row is None else row.value

    def paired(self, one: str, other: str, data: str, metric: str) -> tuple[float, float]:
        """Return the means of two methods over the seeds that both have, for experiments whose seeds draw the data."""
        rows = [self.rows.get((method, data, metric)) for method in (one, other)]
        found = [{} if row is None else row.by_seed for row in rows]
        common = found[0].keys() & found[1].keys()
        if not common:
            return math.nan, math.nan
        first, second = (statistics.fmean(values[seed] for seed in common) for values in found)
        return first, second

    def uncertain(self, one: str, other: str, data: str, metric: str) -> bool:
        """Return whether two means differ by less than their deviations over seeds, or have no deviations."""
        rows = [self.rows[method, data, metric] for method in (one, other)]
        spread = [row.std for row in rows if row.std is not None]
        return not spread or abs(rows[0].value - rows[1].value) < sum(spread)


def better(one: float, other: float, metric: str) -> bool:
    """Return whether one value of a metric is better than another."""
    return one < other if metric in LOWER_IS_BETTER else one > other


class Claim(NamedTuple):
    """A claim of the paper, in its words or nearly so, and how the rows decide it."""

    text: str
    check: Callable[[Scores], Verdict]


def beats(method: str, others: Sequence[str], cells: Sequence[tuple[str, str]]) -> Callable[[Scores], Verdict]:
    """Return the check that a method is better than all others in all cells; the reason names the exceptions."""

    def check(scores: Scores) -> Verdict:
        found, lost, doubt = [], [], 0
        for data, metric in cells:
            for other in others:
                mine, theirs = (scores(m, data, metric) for m in (method, other))
                if math.isnan(mine) or math.isnan(theirs):
                    continue
                doubt += scores.uncertain(method, other, data, metric)
                found.append(f"{data} {metric}: {method} {number(mine)}, {other} {number(theirs)}")
                if not better(mine, theirs, metric):
                    lost.append(found[-1])
        if not found:
            return NOT_TESTED
        weak = f" ({doubt} within the deviation over seeds, or of one seed each)" if doubt else ""
        if lost:
            return Verdict(False, f"not in {len(lost)} of {len(found)} comparisons{weak}; {'; '.join(lost[:3])}")
        return Verdict(True, f"in all {len(found)} comparisons{weak}; {'; '.join(found[:3])}")

    return check


def reaches(method: str, data: str, metric: str, value: float) -> Callable[[Scores], Verdict]:
    """Return the check that a method is at least as good as a value."""

    def check(scores: Scores) -> Verdict:
        mine = scores(method, data, metric)
        if math.isnan(mine):
            return NOT_TESTED
        return Verdict(not better(value, mine, metric), f"{data} {metric}: {number(mine)}, the paper {number(value)}")

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
    cells, lines = Scores(rows).rows, []
    for head in headlines:
        faithful, best = (cells.get((m, head.data, head.metric)) for m in (head.faithful, head.best))
        if faithful is None and (best is None or head.paper is not None):
            continue
        published = None if faithful is None else faithful.paper
        level = None if faithful is None or published is None else not better(published, faithful.value, head.metric)
        if head.paper is not None:
            paper = f"{number(head.paper)} (other data)"
        else:
            paper = "–" if published is None else number(published)
        again, ours = ("–" if row is None else row.text for row in (faithful, best))
        lines.append(Line(title, head.label, paper, again, ours, level))
    return lines
