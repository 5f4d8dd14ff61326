"""docs/reliability.md shows what results/attack.json holds."""

import json
from pathlib import Path

from benchmarks.attack import report

TOP = Path(__file__).parents[2]


def test_the_page_shows_the_record():
    rows = json.loads((TOP / "results" / "attack.json").read_text())["rows"]
    assert report(rows) in (TOP / "docs" / "reliability.md").read_text()
