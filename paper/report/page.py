"""The report as one HTML file without dependencies: readable on a phone, in dark mode, and printed."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .document import LONG, Section
from .scoreboard import word
from .tables import Cell, Table

STYLE = """
:root { color-scheme: light dark; --text: #1b2530; --soft: #5d6b78; --line: #d9e0e6; --back: #fbfcfd; --card: #fff;
  --accent: #1d5fa8; --good: #0b7a4b; --bad: #b3371f; --mark: #e8f3ec; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e9ee; --soft: #9aa8b5; --line: #2c3742; --back: #12181e;
  --card: #19212a; --accent: #7db8f5; --good: #5fd3a3; --bad: #ff9d86; --mark: #17352a; }
  figure svg { filter: invert(.9) hue-rotate(180deg); background: transparent; } }
* { box-sizing: border-box; }
body { font: 16px/1.6 "Source Sans 3", "Segoe UI", system-ui, sans-serif; color: var(--text); background: var(--back);
  max-width: 80rem; margin: 0 auto; padding: 1.5rem clamp(.75rem, 3vw, 2.5rem) 4rem; }
h1 { font-size: clamp(1.6rem, 4vw, 2.4rem); line-height: 1.2; margin: 1rem 0 .5rem; letter-spacing: -.01em; }
h2 { font-size: 1.35rem; margin: 0 0 .5rem; } p { max-width: 46rem; margin: .5rem 0; } a { color: var(--accent); }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; margin: 1rem 0 2rem; font-size: .95rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; margin: 1.5rem 0;
  padding: clamp(.9rem, 2.5vw, 1.75rem); }
.wide { overflow-x: auto; margin: .75rem 0; max-width: 100%; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; min-width: 100%; }
th, td { padding: .35rem .8rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
thead th { color: var(--soft); font-weight: 600; border-bottom: 2px solid var(--line); vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--card); }
.methods td:nth-child(2), .text td, .text th { text-align: left; } .text td { white-space: normal; min-width: 7rem; }
.text td.why { color: var(--soft); min-width: 16rem; font-size: .88rem; overflow-wrap: anywhere; }
tbody tr:hover > * { background: color-mix(in srgb, var(--accent) 7%, var(--card)); }
.best { color: var(--good); font-weight: 700; } .holds { color: var(--good); font-weight: 700; }
.fails { color: var(--bad); font-weight: 700; } .not { color: var(--soft); }
small, .soft { color: var(--soft); font-size: .85rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem; }
figure { margin: .5rem 0; } figure svg { width: 100%; height: auto; background: #fff; border-radius: 8px; }
figcaption { color: var(--soft); font-size: .88rem; } details { margin: .75rem 0; }
summary { cursor: pointer; color: var(--accent); font-weight: 600; } li { color: var(--soft); max-width: 46rem; }
@media print { nav { display: none; } section { break-inside: avoid-page; border: 0; } details > * { display: block; } }
"""


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
        '<section id="claims"><h2>Claims of the paper</h2><div class="wide"><table class="text"><thead><tr>'
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
