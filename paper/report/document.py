"""`RESULTS.md`, `report.html` and the figures, from the records of the runs alone."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from ..experiment import NAMES, Experiment, get_experiment
from ..runner import Record, records, slug
from .page import Section, page
from .tables import markdown, rows, table


def write_report(folder: str | Path = "results") -> tuple[Path, Path]:
    """Writes `RESULTS.md` beside the folder of results, `report.html` and `figures/` into it; gives both files.

    >>> write_report("results")  # doctest: +SKIP
    (PosixPath('RESULTS.md'), PosixPath('results/report.html'))

    An experiment that has full runs is shown by these, else by its quick ones.
    """
    folder = Path(folder)
    found = records(folder)
    if not found:
        raise FileNotFoundError(f"there are no results in {folder}: `deepsets paper run NAME` makes some.")
    sections = []
    for name in NAMES:
        mine = [record for record in found if record.experiment == name]
        full = any(record.full for record in mine)
        if mine:
            sections.append(_section(get_experiment(name), [record for record in mine if record.full == full]))
    foot = _made_with(found)
    texts = []
    for section in sections:
        pictures = []
        if section.private:
            titles = "; ".join(section.private)
            pictures.append(
                f"Figures of data that may not be passed on are in the `report.html` that the command makes: {titles}."
            )
        for title, svg in [figure for figure in section.figures if figure[0] not in section.private]:
            picture = folder / "figures" / f"{section.name}-{slug(title)}.svg"
            _write(picture, svg)
            pictures.append(f"![{title}]({folder.name}/figures/{picture.name})")
        lines = [f"## {section.title}", section.about, markdown(section.table), *pictures]
        if section.reductions:
            lines.append("Against the protocol of the paper:\n" + "\n".join(f"- {line}" for line in section.reductions))
        texts.append("\n\n".join(lines))
    head = (
        "# The paper's experiments, measured again\n\nMade by `deepsets paper report` from `results/`. Each cell: what "
        "we measured, mean ± deviation over seeds, and in brackets the paper's number. **Bold**: the best of its line."
    )
    return (
        _write(folder.parent / "RESULTS.md", "\n\n".join([head, *texts, foot]) + "\n"),
        _write(folder / "report.html", page(sections, foot)),
    )


def _section(about: Experiment, found: list[Record]) -> Section:
    made = table(rows(found), list(about.methods))
    newest = max(found, key=lambda r: r.date)  # if the protocol changed, this one knows
    text = (
        f"Section {about.section} of the paper. Data: {newest.data}. "
        f"{'Full' if newest.full else 'Quick'} protocol, {_seeds(found, about.seeds(newest.full))}; {_seconds(found)}. "
        f"{about.notes}"
    )
    figures = [(title, _svg(draw, found)) for title, draw in about.figures.items()]
    private = about.show_data if newest.full else ()
    return Section(about.name, about.title, text.strip(), newest.reductions, made, figures, private)


def _seeds(found: list[Record], asked: Sequence[int]) -> str:
    """The seeds, and which methods have fewer of them: "seeds 0, 1 of 0, 1, 2 (LSTM, GRU: 0)"."""
    methods: dict[str, set[int]] = {}
    for record in found:
        methods.setdefault(record.method, set()).add(record.seed)
    every = set().union(*methods.values())
    fewer: dict[tuple[int, ...], list[str]] = {}
    for method, seeds in methods.items():
        if seeds != every:
            fewer.setdefault(tuple(sorted(seeds)), []).append(method)
    told = "; ".join(f"{', '.join(names)}: {', '.join(map(str, seeds))}" for seeds, names in fewer.items())
    missing = f" of {', '.join(map(str, asked))}" if not every.issuperset(asked) else ""
    some = f"seed{'s' * (len(every) > 1)} {', '.join(map(str, sorted(every)))}"
    return some + missing + (f" ({told})" if told else "")


def _seconds(found: list[Record]) -> str:
    """How long a run of each method took, mean over seeds: of a core, where that is known, else by the clock."""
    texts = []
    for method, runs in groupby(sorted(found, key=lambda r: r.method), key=lambda r: r.method):
        times = [sum(part.get("core_seconds", part["seconds"]) for part in run.parts.values()) for run in runs]
        texts.append(f"{method} {sum(times) / len(times):.0f} s")
    return "a run took, in seconds of one core where they were taken, else by the clock: " + ", ".join(texts)


def _svg(draw, found: Sequence[Record]) -> str:  # type: ignore[no-untyped-def]  # matplotlib is an extra, its types too
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
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    return path
