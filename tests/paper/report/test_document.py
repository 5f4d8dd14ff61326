"""RESULTS.md and report.html: made of the records alone."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import paper
from paper.report.scoreboard import Claim, Headline, beats
from paper.report.tables import number

from ..conftest import TOY


def test_the_report_is_made_of_the_records_alone(results):
    pytest.importorskip("matplotlib")
    text, page = paper.write_report(results)
    table = text.read_text()
    assert "| M=5 | accuracy | **0.550 ± 0.071** (0.400) | 0.150 ± 0.071 |" in table
    assert "| M=5 | mse | **0.45" in table  # for an error, less is better
    assert "two numbers & no more" in table and "results/figures/toy-a-curve.svg" in table
    html = page.read_text()
    assert "A &lt;toy&gt;" in html and "two numbers &amp; no more" in html and "<svg" in html
    assert "src=" not in html and "<link" not in html and "@import" not in html
    assert paper.write_report(results)[1].read_text() == html


def test_the_report_says_who_has_fewer_seeds_and_takes_the_differences_from_the_notes(results, toy):
    pytest.importorskip("matplotlib")
    place = results / "toy-quick" / "lstm-0.json"
    old = json.loads(place.read_text())
    place.write_text(json.dumps(old | {"reductions": ["half of the data"]}))  # corrected in the notes since
    paper.run("toy", results, methods=["Deep Sets"], seeds=[2])
    text = paper.write_report(results)[0].read_text()
    assert "Quick protocol, seeds 0, 1, 2 (LSTM: 0, 1). " in text
    assert "- two numbers & no more" in text and "half of the data" not in text
    toy(replace(TOY, seeds=lambda full: (0, 1, 2, 3)))
    assert "Quick protocol, seeds 0, 1, 2 of 0, 1, 2, 3 (LSTM: 0, 1). " in paper.write_report(results)[0].read_text()


def test_figures_of_data_that_may_not_be_passed_on_stay_in_the_page(results, toy):
    pytest.importorskip("matplotlib")
    two = {**TOY.figures, "Free to see": TOY.figures["A curve"]}
    both = replace(TOY, figures=two, show_data=["A curve"])
    toy(both)
    assert "figures/toy-a-curve.svg" in paper.write_report(results)[0].read_text()  # quick forms show made-up data
    (results / "figures" / "toy-a-curve.svg").unlink()
    paper.run("toy", results, full=True, methods=["LSTM"], seeds=[0])
    text, page = paper.write_report(results)
    assert "may not be redistributed are in the `report.html` that the command makes: A curve." in text.read_text()
    assert page.read_text().count("<svg") == 2 and "figures/toy-free-to-see.svg" in text.read_text()
    assert [picture.name for picture in (results / "figures").iterdir()] == ["toy-free-to-see.svg"]


def test_numbers_in_tables():
    assert [number(v) for v in (0.0, 0.12345, 99.96, 123456.0)] == ["0", "0.123", "100", "123456"]


def test_the_report_begins_with_the_scoreboard_and_the_claims(results, toy):
    pytest.importorskip("matplotlib")
    claim = Claim("Deep Sets beats LSTM", beats("Deep Sets", ["LSTM"], [("M=5", "accuracy")]))
    toy(replace(TOY, headlines=[Headline("five", "M=5", "accuracy", best="LSTM")], claims=[claim]))
    text, page = (path.read_text() for path in paper.write_report(results))
    assert "| A <toy> | five | 0.400 | 0.550 ± 0.071 ✓ | 0.150 ± 0.071 |" in text
    assert "| A <toy> | Deep Sets beats LSTM | **holds** | in all 1 comparisons;" in text
    assert text.index("## Scoreboard") < text.index("## Claims") < text.index("# Details")
    assert 'class="holds">holds<' in page and "prefers-color-scheme: dark" in page and "overflow-x: auto" in page


def test_the_readme_counts_rows_and_claims_as_the_results_do():
    root = Path(paper.__file__).parents[1]
    readme, results = (" ".join((root / name).read_text().split()) for name in ("README.md", "RESULTS.md"))
    level, rows = re.search(r"(\d+) of (\d+) headline rows with a published number", results).groups()
    claims, hold, fail = re.search(r"Of (\d+) claims (\d+) hold, (\d+) fail", results).groups()
    assert f"in {level} of {rows} headline rows on the same data" in readme
    assert f"of {claims} claims {hold} hold, {fail} fail" in readme


def test_lines_are_in_natural_order_and_long_tables_are_folded(results, toy):
    pytest.importorskip("matplotlib")
    toy(replace(TOY, parts=lambda full: tuple(map(str, range(20, 0, -1)))))
    paper.run("toy", results, methods=["LSTM"], seeds=[0])
    text, page = (path.read_text() for path in paper.write_report(results))
    places = [text.index(f"| M={m} | accuracy") for m in (1, 2, 5, 10, 20)]
    assert places == sorted(places)
    assert "<details><summary>All 40 rows</summary>" in text and "<summary>All 40 rows</summary>" in page
