"""`RESULTS.md`, `report.html` and the figures, from the records of the runs alone."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from deepsets.files import atomic_path

from ..experiment import NAMES, Experiment, get_experiment
from ..runner import Record, records, slug
from .scoreboard import Line, Verdict, scoreboard, verdicts, word
from .tables import Table, markdown, markdown_table, rows, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONG = 12  # lines of a table from which on it is folded


class Section(NamedTuple):
    """One experiment: its text, differences from the paper, table, figures as (title, SVG), headlines and claims."""

    name: str
    title: str
    about: str
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
    from .page import page

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
    foot = _made_with(found)
    return (
        _write(folder.parent / "RESULTS.md", _document(sections, folder, foot)),
        _write(folder / "report.html", page(sections, foot)),
    )


def _document(sections: Sequence[Section], folder: Path, foot: str) -> str:
    texts = [
        "# The paper's experiments, measured again\n\nMade by `python -m paper report` from `results/`. First the "
        "headline rows and the claims of the paper, then the details of each experiment.",
        "## Scoreboard\n\nPaper: the published number. Deep Sets: the paper's method, run again; ✓ where it is at "
        "least as good as published. Ours: the best method we know. Mean ± deviation over seeds.",
        markdown(
            ["experiment", "measured", "paper", "Deep Sets, re-run", "ours"],
            [
                [line.experiment, line.label, line.paper, line.faithful + (" ✓" if line.level else ""), line.best]
                for section in sections
                for line in section.headlines
            ],
        ),
        "## Claims of the paper\n\nVerdicts compare means over seeds, on the data and at the training budgets of our "
        "runs: a claim that fails here may hold with the paper's data and budget. The details say what differs.",
        markdown(
            ["experiment", "claim", "verdict", "why"],
            [
                [section.title, claim, f"**{word(verdict.holds)}**", verdict.why]
                for section in sections
                for claim, verdict in section.claims
            ],
        ),
        "# Details\n\nEach cell: mean ± deviation over seeds, and in brackets the paper's number. **Bold**: the best "
        "of its line.",
    ]
    texts += [_section_text(section, folder) for section in sections]
    return "\n\n".join([*texts, foot]) + "\n"


def _section_text(section: Section, folder: Path) -> str:
    pictures = []
    if section.private:
        titles = "; ".join(section.private)
        pictures.append(
            f"Figures of data that may not be redistributed are in the `report.html` that the command makes: {titles}."
        )
    for title, svg in section.figures:
        if title not in section.private:
            picture = folder / "figures" / f"{section.name}-{slug(title)}.svg"
            _write(picture, svg)
            pictures.append(f"![{title}]({folder.name}/figures/{picture.name})")
    made = markdown_table(section.table)
    if len(section.table.lines) > LONG:
        made = f"<details><summary>All {len(section.table.lines)} rows</summary>\n\n{made}\n\n</details>"
    lines = [f"## {section.title}", section.about, section.runs, made, *pictures]
    if section.reductions:
        lines.append("Differences from the paper:\n" + "\n".join(f"- {line}" for line in section.reductions))
    return "\n\n".join(line for line in lines if line)


def _section(about: Experiment, found: list[Record]) -> Section:
    measured = rows(found)
    newest = max(found, key=lambda r: r.date)  # if the protocol changed, this one knows
    runs = (
        f"Section {about.section} of the paper. Data: {newest.data}. {'Full' if newest.full else 'Quick'} protocol, "
        f"{_seeds(found, about.seeds(newest.full))}. {_seconds(found)}."
    )
    return Section(
        about.name, about.title, about.notes, runs, newest.reductions,
        table(measured, list(about.methods)),
        [(title, _svg(draw, found)) for title, draw in about.figures.items()],
        about.show_data if newest.full else (),
        scoreboard(about.title, about.headlines, measured),
        verdicts(about.claims, measured),
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


def _svg(draw: Callable[[Sequence[Record]], Figure], found: Sequence[Record]) -> str:
    try:
        import matplotlib as mpl
    except ImportError:
        raise ImportError("the report has figures: pip install 'deepsets[plots]'.") from None
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "deepsets", "font.size": 9, "figure.dpi": 100}):
        out = io.StringIO()
        draw(found).savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _made_with(found: list[Record]) -> str:
    dates, latest = sorted({r.date[:10] for r in found}), max(found, key=lambda r: r.date)
    versions = ", ".join(f"{name} {number}" for name, number in latest.versions.items())
    return f"Runs of {dates[0]} to {dates[-1]}, Python {latest.python}, {versions}."


def _write(path: Path, text: str) -> Path:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path
