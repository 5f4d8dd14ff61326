"""`make demo`: the paper's experiments in their quick form, on data that needs no download, and the report of them."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from . import paper
from .paper._tables import table

FOLDER = Path("demo-results") / "results"


def main() -> None:
    """Runs what is not there yet, prints the tables, and says where to look next."""
    console, start = Console(), time.perf_counter()
    for name in paper.NAMES:
        about = paper.experiment(name)
        console.rule(f"{about.title} (section {about.section})")
        records = paper.run(name, FOLDER, progress=True, say=lambda line: console.print(line, style="dim"))
        made = table(paper.rows(records), list(about.methods))
        shown = Table(Column("data", no_wrap=True), Column("metric", no_wrap=True), *made.methods)
        for data, metric, cells in made.lines:
            texts = ("" if cell is None else f"[bold]{cell.ours}[/]" if cell.best else cell.ours for cell in cells)
            shown.add_row(data, metric, *texts)
        console.print(shown)
    results, page = paper.report(FOLDER)
    console.rule(f"Done in {time.perf_counter() - start:.0f} s")
    console.print(f"Look at {page} in a browser, or at {results}.")
    console.print("RESULTS.md has the full runs on real data, README.md the first lines of your own, docs/ the rest.")


if __name__ == "__main__":
    main()
