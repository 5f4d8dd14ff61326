"""`make demo`: the paper's experiments in their quick form, on data that needs no download, and the report of them."""

import time
from pathlib import Path

from rich import box
from rich.console import Console, Group
from rich.table import Column, Table

import paper

from .report.tables import Table as Made
from .report.tables import method_table

FOLDER = Path("demo-results") / "results"
ACROSS = 4  # methods that have a column each


def main() -> None:
    """Run what is not there yet, print the tables, and say where to look next."""
    console, start = Console(), time.perf_counter()
    console.print("Every experiment of the Deep Sets paper in a form that takes seconds, on generated or small data.")
    for name in paper.NAMES:
        about = paper.get_experiment(name)
        console.rule(f"{about.title} (section {about.section})")
        console.print(f"{about.data(False)[0].upper()}{about.data(False)[1:]}.", style="dim")
        with console.status("") as status:
            records = paper.run(name, FOLDER, log=lambda line: status.update(line))
        console.print(shown(method_table(paper.rows(records), list(about.methods))))
    results, page = paper.write_report(FOLDER)
    console.rule(f"Done in {time.perf_counter() - start:.0f} s")
    console.print(f"Look at {page} in a browser, or at {results}.")
    console.print("RESULTS.md has the full runs on real data, README.md the first lines of your own, docs/ the rest.")


def shown(made: Made) -> Group:
    """Show the methods across, or down where there are many, so that numbers are not cut in a narrow terminal.

    Methods that stand down have a table for each group of metrics that the same ones of them have.
    """
    texts = [[f"[bold]{cell.text}[/]" if cell.mark else cell.text for cell in line[2:]] for line in made.lines]
    names, methods = [(line[0].text, line[1].text) for line in made.lines], made.head[2:]
    if len(methods) <= ACROSS:
        table = Table(Column("data", no_wrap=True), Column("metric", no_wrap=True), *methods, box=box.SIMPLE_HEAD)
        for (data, metric), row in zip(names, texts, strict=True):
            table.add_row(data, metric, *row)
        return Group(table)
    several, tables = len({data for data, _ in names}) > 1, []
    columns: dict[tuple[bool, ...], list[int]] = {}
    for number, row in enumerate(texts):
        columns.setdefault(tuple(map(bool, row)), []).append(number)
    for who, numbers in columns.items():
        heads = [" ".join(names[number] if several else names[number][1:]) for number in numbers]
        folded = [Column(head, overflow="fold") for head in heads]
        table = Table(Column("", no_wrap=True), *folded, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        for place, method in enumerate(methods):
            if who[place]:
                table.add_row(method, *(texts[number][place] for number in numbers))
        tables.append(table)
    return Group(*tables)


if __name__ == "__main__":
    main()
