"""The report as one HTML file that needs nothing else: readable on a phone, in the dark, and printed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape
from typing import NamedTuple

from .tables import Cell, Table

STYLE = """
:root { color-scheme: light dark; --line: #8884; --best: #0a7d4f; --soft: #777; }
@media (prefers-color-scheme: dark) { :root { --best: #5fd3a3; --soft: #aaa; } figure svg { background: #fff; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: auto; padding: 1rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: Canvas; }
td:nth-child(2) { text-align: left; } .best { color: var(--best); font-weight: 700; }
small { color: var(--soft); } figure { margin: 1rem 0; }
figure svg { max-width: 100%; height: auto; border-radius: 6px; }
nav a { margin-right: 1rem; } li { color: var(--soft); }
@media print { nav { display: none; } section { break-inside: avoid-page; } }
"""


class Section(NamedTuple):
    """One experiment: its table, what to know about it, and its figures as (title, SVG), some for here only."""

    name: str
    title: str
    about: str
    reductions: Sequence[str]
    table: Table
    figures: Sequence[tuple[str, str]]
    private: Collection[str] = ()


def page(sections: Sequence[Section], foot: str) -> str:
    """The whole file."""
    links = "".join(f'<a href="#{s.name}">{escape(s.title)}</a>' for s in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Deep Sets, paper and ours</title><style>{STYLE}</style></head><body>"
        "<h1>Deep Sets: the paper's experiments, measured again</h1>"
        "<p>Each cell: what we measured, mean ± deviation over seeds; <small>below it the paper's number</small>. "
        '<span class="best">The best of a line.</span></p>'
        f"<nav>{links}</nav>{''.join(map(_section, sections))}"
        f"<footer><small>{escape(foot)}</small></footer></body></html>\n"
    )


def _section(s: Section) -> str:
    figures = "".join(f"<figure>{svg}<figcaption>{escape(title)}</figcaption></figure>" for title, svg in s.figures)
    items = "".join(f"<li>{escape(line)}</li>" for line in s.reductions)
    return (
        f'<section id="{s.name}"><h2>{escape(s.title)}</h2><p>{escape(s.about)}</p>{_table(s.table)}'
        f"{figures}{f'<p>Against the protocol of the paper:</p><ul>{items}</ul>' if items else ''}</section>"
    )


def _table(made: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("data", "metric", *made.methods))
    body = "".join(
        f'<tr><th scope="row">{escape(data)}</th><td>{escape(metric)}</td>{"".join(map(_cell, cells))}</tr>'
        for data, metric, cells in made.lines
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "<td></td>"
    paper = f"<br><small>paper {cell.paper}</small>" if cell.paper else ""
    mark = ' class="best"' if cell.best else ""
    return f"<td{mark}>{cell.ours}{paper}</td>"
