"""The rows of one experiment as a table, for Markdown, HTML and the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .rows import Row, best, number


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
