"""Write the tables of docs/speed.md from results/speed-*.json: `python -m benchmarks.table`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .results import RESULTS

PAGE = Path(__file__).parent.parent / "docs" / "speed.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


def _rows(name: str) -> list[dict[str, Any]]:
    path = RESULTS / f"speed-{name}.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) and value < 100 else f"{value:.0f}" if value else "–"


def _comparison(names: list[str]) -> list[str]:
    """One line per case and opponent: milliseconds and ratios, idle and busy."""
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in (row for name in names for row in _rows(name)):
        if "ours is faster by" in row and "load" in row:
            found.setdefault((row["case"], row["way"]), {})[row["load"]] = row
    lines = ["| what | way | idle, ms | ours faster by | busy, ms | ours faster by |", "|---|---|---|---|---|---|"]
    before = ""
    for (case, way), loads in found.items():
        cells = []
        for load in ("idle", "busy"):
            row = loads.get(load, {})
            cells += [_number(row.get("ms")), _number(row.get("ours is faster by"))]
        lines.append("| " + " | ".join([case if case != before else "", way, *cells]) + " |")
        before = case
    return lines


def _plain(name: str) -> list[str]:
    """Rows that have no opponent, as they are."""
    rows = [row for row in _rows(name) if "ours is faster by" not in row]
    if not rows:
        return []
    keys = [key for key in rows[0] if key != "load"]
    keys += [key for row in rows for key in row if key not in keys and key != "load"]
    keys = list(dict.fromkeys(keys))
    lines = ["| " + " | ".join(keys) + " |", "|---" * len(keys) + "|"]
    for row in rows:
        cells = [value if isinstance(value, str) else _number(value) for value in (row.get(key, "") for key in keys)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def update() -> None:
    """Replace what stands between the marks in docs/speed.md."""
    parts = [_comparison(["pooling", "heavy-tail", "point-clouds", "scorer", "threads"])]
    parts += [_plain(name) for name in ("pooling", "startup", "memory")]
    tables = "\n\n".join("\n".join(lines) for lines in parts if lines)
    head, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n\n{tables}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    update()
