"""`make demo`: the paper's experiments in their quick form, on data that needs no download, and the report of them."""

from __future__ import annotations

import time
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Column, Table

import paper

from .report.tables import Table as Made
from .report.tables import table as arranged

FOLDER = Path("demo-results") / "results"
ACROSS = 4  # methods that have a column each


def main() -> None:
    """Runs what is not there yet, prints the tables, and says where to look next."""
    console, start = Console(), time.perf_counter()
    for name in paper.NAMES:
        about = paper.get_experiment(name)
        console.rule(f"{about.title} (section {about.section})")
        records = paper.run(name, FOLDER, progress=True, log=lambda line: console.print(line, style="dim"))
        made = arranged(paper.rows(records), list(about.methods))
        console.print(shown(made))
    results, page = paper.write_report(FOLDER)
    console.rule(f"Done in {time.perf_counter() - start:.0f} s")
    console.print(f"Look at {page} in a browser, or at {results}.")
    console.print("RESULTS.md has the full runs on real data, README.md the first lines of your own, docs/ the rest.")


def shown(made: Made) -> Table:
    """The methods across, or down where there are many, so that numbers are not cut in a narrow terminal."""
    texts = [
        ["" if c is None else f"[bold]{c.ours}[/]" if c.best else c.ours for c in cells] for *_, cells in made.lines
    ]
    if len(made.methods) <= ACROSS:
        table = Table(Column("data", no_wrap=True), Column("metric", no_wrap=True), *made.methods)
        for (data, metric, _), row in zip(made.lines, texts, strict=True):
            table.add_row(data, metric, *row)
        return table
    several = len({data for data, *_ in made.lines}) > 1
    heads = [Column(f"{data} {metric}" if several else metric, overflow="fold") for data, metric, _ in made.lines]
    table = Table(Column("", no_wrap=True), *heads, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for method, *row in zip(made.methods, *texts, strict=True):
        table.add_row(method, *row)
    return table


if __name__ == "__main__":
    main()
