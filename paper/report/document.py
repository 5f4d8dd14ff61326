"""`RESULTS.md`, `report.html` and the figures, from the records of the runs alone."""

import io
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from deepsets.files import atomic_path

from ..experiment import NAMES, Experiment, get_experiment
from ..runner import Record, records, slug
from .scoreboard import Line, Scores, Verdict, scoreboard
from .tables import Cell, Table, method_table, rows

LONG = 12  # lines of a table from which on it is folded
NARROW = 6  # columns of a table up to which figures stand beside it
STYLE = Path(__file__).with_name("style.css")
TITLE = "Deep Sets: the paper's experiments, measured again"
SCOREBOARD = (
    "Paper: the published number. Deep Sets: the paper's method, run again; ✓ where it is at least as good as "
    "published. Ours: the best method we know. Mean ± deviation over seeds; a number without ± is of one seed."
)
CLAIMS = (
    "Verdicts compare means over seeds, on the data and at the training budgets of our runs: a claim that fails here "
    "may hold with the paper's data and budget. The details say what differs."
)
CELLS = "Each cell: mean ± deviation over seeds, and in brackets the paper's number. **Bold**: the best of its line."


class Section(NamedTuple):
    """One experiment: its text, differences from the paper, table, figures as (title, SVG), headlines and claims."""

    about: Experiment
    runs: str
    reductions: Sequence[str]
    table: Table
    figures: Sequence[tuple[str, str]]
    private: Collection[str]
    headlines: Sequence[Line]
    claims: Sequence[tuple[str, Verdict]]


def write_report(folder: str | Path = "results") -> tuple[Path, Path]:
    """Write `RESULTS.md` beside a folder of results, `report.html` and `figures/` into it.

    An experiment that has full runs is shown by these, otherwise by its quick ones.

    Parameters
    ----------
    folder : path, default="results"
        Folder of results.

    Returns
    -------
    tuple of Path
        The Markdown and the HTML file.

    """
    folder = Path(folder)
    found = records(folder)
    if not found:
        raise FileNotFoundError(f"there are no results in {folder}: run `python -m paper run NAME` first.")
    sections = []
    for name in NAMES:
        mine = [record for record in found if record.experiment == name]
        full = any(record.full for record in mine)
        if mine:
            sections.append(_section(get_experiment(name), [record for record in mine if record.full == full]))
    dates, latest = sorted({r.date[:10] for r in found}), max(found, key=lambda r: r.date)
    versions = ", ".join(f"{name} {number}" for name, number in latest.versions.items())
    foot = f"Runs of {dates[0]} to {dates[-1]}, Python {latest.python}, {versions}."
    return (
        _write(folder.parent / "RESULTS.md", _markdown(sections, folder, foot)),
        _write(folder / "report.html", _page(sections, foot)),
    )


def _section(about: Experiment, found: list[Record]) -> Section:
    measured = rows(found)
    full = found[0].full
    runs = (
        f"Section {about.section} of the paper. Data: {about.data(full)}. {'Full' if full else 'Quick'} protocol, "
        f"{_seeds(found, about.seeds(full))}. {_seconds(found)}."
    )
    return Section(
        about, runs, about.reductions(full), method_table(measured, list(about.methods)),
        [(title, _svg(draw, found)) for title, draw in about.figures.items()],
        about.show_data if full else (),
        scoreboard(about.title, about.headlines, measured),
        [(claim.text, claim.check(Scores(measured))) for claim in about.claims],
    )  # fmt: skip


def _seeds(found: list[Record], asked: Sequence[int]) -> str:
    """Return the seeds, and which methods have fewer of them: "seeds 0, 1 of 0, 1, 2 (LSTM, GRU: 0)"."""
    methods: dict[str, set[int]] = {}
    for record in found:
        methods.setdefault(record.method, set()).add(record.seed)
    every = set().union(*methods.values())
    fewer: dict[tuple[int, ...], list[str]] = {}
    for method, seeds in methods.items():
        if seeds != every:
            fewer.setdefault(tuple(sorted(seeds)), []).append(method)
    exceptions = "; ".join(f"{', '.join(names)}: {', '.join(map(str, seeds))}" for seeds, names in fewer.items())
    missing = f" of {', '.join(map(str, asked))}" if not every.issuperset(asked) else ""
    some = f"seed{'s' * (len(every) > 1)} {', '.join(map(str, sorted(every)))}"
    return some + missing + (f" ({exceptions})" if exceptions else "")


def _seconds(found: list[Record]) -> str:
    """Return how long a run of each method took, mean over seeds: CPU seconds where known, else wall-clock seconds."""
    texts = []
    for method, runs in groupby(sorted(found, key=lambda r: r.method), key=lambda r: r.method):
        times = [sum(part.get("core_seconds", part["seconds"]) for part in run.parts.values()) for run in runs]
        texts.append(f"{method} {sum(times) / len(times):.0f} s")
    return "Mean time of a run (CPU seconds; wall-clock in early records): " + ", ".join(texts)


def _svg(draw: Callable[[Sequence[Record]], Any], found: Sequence[Record]) -> str:
    try:
        import matplotlib as mpl
    except ImportError:
        raise ImportError("the report has figures: pip install 'deepsets[plots]'.") from None
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "deepsets", "font.size": 9, "figure.dpi": 100}):
        out = io.StringIO()
        draw(found).savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _tables(sections: Sequence[Section]) -> tuple[Table, Table, str]:
    """Return the scoreboard, the claims, and a sentence that counts them."""
    lines = [line for section in sections for line in section.headlines]
    claims = [(section.about.title, *claim) for section in sections for claim in section.claims]
    board = [
        [*map(Cell, line[:3]), Cell(line.faithful + " ✓" * bool(line.level), "", "level" * bool(line.level)),
         Cell(line.best)]
        for line in lines
    ]  # fmt: skip
    judged = [
        [Cell(title), Cell(claim), Cell(verdict.word, "", verdict.word.split()[0]), Cell(verdict.why)]
        for title, claim, verdict in claims
    ]
    levels, words = Counter(line.level for line in lines), Counter(verdict.word for *_, verdict in claims)
    summary = (
        f"{levels[True]} of {levels[True] + levels[False]} headline rows with a published number on the same data are "
        f"at least as good as the paper. Of {len(claims)} claims {words['holds']} hold, {words['fails']} fail and "
        f"{words['not tested']} could not be tested."
    )
    head = ["experiment", "measured", "paper", "Deep Sets, re-run", "ours"]
    return Table(head, board, "board"), Table(["experiment", "claim", "verdict", "why"], judged, "claims"), summary


def _markdown(sections: Sequence[Section], folder: Path, foot: str) -> str:
    board, claims, summary = _tables(sections)
    texts = [
        f"# {TITLE}",
        "Made by `python -m paper report` from `results/`. First the headline rows and the claims of the paper, then "
        f"the details of each experiment. {summary}",
        f"## Scoreboard\n\n{SCOREBOARD}", board.markdown(),
        f"## Claims of the paper\n\n{CLAIMS}", claims.markdown(),
        f"# Details\n\n{CELLS}",
    ]  # fmt: skip
    for section in sections:
        about, table = section.about, section.table.markdown()
        if len(section.table.lines) > LONG:
            table = f"<details><summary>All {len(section.table.lines)} rows</summary>\n\n{table}\n\n</details>"
        texts += [f"## {about.title}", *about.notes, section.runs, table]
        if section.private:
            texts.append(
                "Figures of data that may not be redistributed are in the `report.html` that the command makes: "
                f"{'; '.join(section.private)}."
            )
        for title, svg in section.figures:
            if title not in section.private:
                picture = _write(folder / "figures" / f"{about.name}-{slug(title)}.svg", svg)
                texts.append(f"![{title}]({folder.name}/figures/{picture.name})")
        if section.reductions:
            texts.append("Differences from the paper:\n" + "\n".join(f"- {line}" for line in section.reductions))
    return "\n\n".join([*texts, foot]) + "\n"


def _page(sections: Sequence[Section], foot: str) -> str:
    """Return one HTML file without dependencies: readable on a phone, in dark mode, and printed."""
    board, claims, summary = _tables(sections)
    links = "".join(f'<a href="#{s.about.name}">{escape(s.about.title)}</a>' for s in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{TITLE}</title><style>{STYLE.read_text(encoding='utf-8')}</style></head><body>"
        f"<header><h1>{TITLE}</h1><p>{summary}</p></header>"
        f"<nav><a href='#scoreboard'>Scoreboard</a><a href='#claims'>Claims</a>{links}</nav>"
        f'<section id="scoreboard"><h2>Scoreboard</h2><p>{SCOREBOARD}</p>{board.html()}</section>'
        f'<section id="claims"><h2>Claims of the paper</h2><p>{CLAIMS}</p>{claims.html()}</section>'
        f"{''.join(map(_article, sections))}<footer>{escape(foot)}</footer></body></html>\n"
    )


def _article(s: Section) -> str:
    def folded(title: str, inner: str) -> str:
        return f"<details><summary>{title}</summary>{inner}</details>" if inner else ""

    table = s.table.html() + "<small>Below a number: the paper's. Green: the best of a line.</small>"
    if len(s.table.lines) > LONG:
        table = folded(f"All {len(s.table.lines)} rows", table)
    figures = "".join(f"<figure>{svg}<figcaption>{escape(title)}</figcaption></figure>" for title, svg in s.figures)
    beside = len(s.table.head) <= NARROW and len(s.figures) == 1
    items = "".join(f"<li>{escape(line)}</li>" for line in s.reductions)
    notes = "".join(f"<p>{escape(text)}</p>" for text in s.about.notes)
    return (
        f'<section id="{s.about.name}"><h2>{escape(s.about.title)}</h2><p class="soft">{escape(s.runs)}</p>'
        f'<div class="{"pair" if beside else "stack"}"><div>{table}</div><div class="figures">{figures}</div></div>'
        f"{folded('Methods and settings', notes)}"
        f"{folded('Differences from the paper', f'<ul>{items}</ul>' if items else '')}</section>"
    )


def _write(path: Path, text: str) -> Path:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path
