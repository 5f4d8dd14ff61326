"""The report as one HTML file without dependencies: readable on a phone, in dark mode, and printed."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from .document import LONG, Section
from .scoreboard import word
from .tables import Cell, Table

STYLE = Path(__file__).with_name("style.css").read_text(encoding="utf-8")


def page(sections: Sequence[Section], foot: str) -> str:
    """Return the whole file."""
    links = "".join(f'<a href="#{s.name}">{escape(s.title)}</a>' for s in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Deep Sets: paper and re-run</title><style>{STYLE}</style></head><body>"
        "<h1>Deep Sets: the paper's experiments, measured again</h1>"
        f"<nav><a href='#scoreboard'>Scoreboard</a><a href='#claims'>Claims</a>{links}</nav>"
        f"{_scoreboard(sections)}{_claims(sections)}{''.join(map(_section, sections))}"
        f"<footer><small>{escape(foot)}</small></footer></body></html>\n"
    )


def _scoreboard(sections: Sequence[Section]) -> str:
    body = "".join(
        f"<tr><td>{escape(line.label)}</td><td>{escape(line.paper)}</td>"
        f"<td{' class=best' if line.level else ''}>{line.faithful}{' ✓' if line.level else ''}</td>"
        f"<td>{line.best}</td></tr>"
        for section in sections
        for line in section.headlines
    )
    return (
        '<section id="scoreboard"><h2>Scoreboard</h2><p>Paper: the published number. Deep Sets: the paper\'s method, '
        "run again; ✓ where it is at least as good as published. Ours: the best method we know. Mean ± deviation over "
        'seeds.</p><div class="wide"><table><thead><tr><th>measured</th><th>paper</th><th>Deep Sets, re-run</th>'
        f"<th>ours</th></tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def _claims(sections: Sequence[Section]) -> str:
    body = "".join(
        f"<tr><td>{escape(claim)}<br><small>{escape(section.title)}</small></td>"
        f'<td class="{word(verdict.holds)}">{word(verdict.holds)}</td><td class="why">{escape(verdict.why)}</td></tr>'
        for section in sections
        for claim, verdict in section.claims
    )
    return (
        '<section id="claims"><h2>Claims of the paper</h2><p>Verdicts compare means over seeds, on the data and at the '
        "training budgets of our runs: a claim that fails here may hold with the paper's data and budget.</p><div"
        '  class="wide"><table class="text"><thead><tr>'
        f"<th>claim</th><th>verdict</th><th>why</th></tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def _section(s: Section) -> str:
    figures = "".join(f"<figure>{svg}<figcaption>{escape(title)}</figcaption></figure>" for title, svg in s.figures)
    items = "".join(f"<li>{escape(line)}</li>" for line in s.reductions)
    table = _table(s.table)
    if len(s.table.lines) > LONG:
        table = f"<details><summary>All {len(s.table.lines)} rows</summary>{table}</details>"
    differences = f"<details open><summary>Differences from the paper</summary><ul>{items}</ul></details>"
    return (
        f'<section id="{s.name}"><h2>{escape(s.title)}</h2><p>{escape(s.about)}</p>'
        f'<p class="soft">{escape(s.runs)}</p>{table}'
        f'<div class="figures">{figures}</div>{differences if items else ""}</section>'
    )


def _table(made: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("data", "metric", *made.methods))
    body = "".join(
        f'<tr><th scope="row">{escape(data)}</th><td>{escape(metric)}</td>{"".join(map(_cell, cells))}</tr>'
        for data, metric, cells in made.lines
    )
    return (
        f'<div class="wide"><table class="methods"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        "<small>Mean ± deviation over seeds; below it the paper's number. Green: the best of a line.</small></div>"
    )


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "<td></td>"
    paper = f"<br><small>paper {cell.paper}</small>" if cell.paper else ""
    mark = ' class="best"' if cell.best else ""
    return f"<td{mark}>{cell.ours}{paper}</td>"
