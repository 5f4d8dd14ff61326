"""The demo: its tables in a terminal of 80 columns."""

import io

import pytest
from rich.console import Console

from paper.demo import shown
from paper.report.tables import Cell, Table


@pytest.mark.parametrize(("name", "count"), [("Method", 3), ("A method with a rather long name", 9)])
def test_numbers_are_whole_in_a_narrow_terminal(name, count):
    methods = [f"{name} {i}" for i in range(count)]
    metrics = ["precision", "recall", "f1", "n+", "recall@10", "recall@100", "recall@1k", "mrr", "median-rank"]
    lines = []
    for m, metric in enumerate(metrics):  # the first four of some methods, the others of others
        values = [f"{10 + i}.{m}{i}" if (m < 4) == (i < count // 2) else "" for i in range(count)]
        lines.append([Cell("generated"), Cell(metric), *map(Cell, values)])
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(shown(Table(["data", "metric", *methods], lines)))
    words = console.export_text().split()
    numbers = [cell.text for line in lines for cell in line[2:] if cell.text]
    assert sorted(word for word in words if word in numbers) == sorted(numbers)
