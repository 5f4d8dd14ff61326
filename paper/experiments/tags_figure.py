"""True tags of some images beside those that were found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("FastTag", "Deep Sets", "Ours")


def figure(records: Sequence[Record], kind: str) -> Figure:
    """A page of text. kind: "tagged" (five tags from the image) or "retrieved" (from some tags, and the image)."""
    from matplotlib.figure import Figure

    columns = {r.method: page for r in reversed(records) if r.method in METHODS for page in _pages(r, kind)}
    methods = [method for method in METHODS if method in columns]
    drawing = Figure(figsize=(4 * (1 + len(methods)), 6), layout="constrained")
    axes = drawing.subplots()
    axes.axis("off")
    if methods:
        images = columns[methods[0]]
        given = [
            f"{_lines(i['query'])}\n→ {_lines(_others(i))}" if kind == "retrieved" else _lines(i["true"])
            for i in images
        ]
        cells = [[true, *(_lines(_marked(columns[m][row])) for m in methods)] for row, true in enumerate(given)]
        head = ["given → true" if kind == "retrieved" else "true", *(f"{m} (* not among the true)" for m in methods)]
        table = axes.table(cells, colLabels=head, cellLoc="left", loc="center")
        table.auto_set_font_size(False)
        table.set_fontsize(7)
        table.scale(1, 4 if kind == "retrieved" else 2)
    return drawing


def _pages(record: Record, kind: str) -> list[list[dict[str, list[str]]]]:
    return [part["extra"][kind] for part in record.parts.values() if kind in part["extra"]]


def _others(image: dict[str, list[str]]) -> list[str]:
    return [tag for tag in image["true"] if tag not in image["query"]]


def _marked(image: dict[str, list[str]]) -> list[str]:
    return [tag if tag in image["true"] else f"{tag}*" for tag in image["found"]]


def _lines(tags: Sequence[str], width: int = 5) -> str:
    return ",\n".join(", ".join(tags[i : i + width]) for i in range(0, len(tags), width))
