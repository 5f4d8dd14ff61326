"""Headline rows and claims: computed from rows, never from text."""

import math
from dataclasses import replace

import paper
from paper.report.scoreboard import Headline, Scores, beats, reaches, scoreboard
from paper.report.tables import Row


def row(method, data, metric, value, published=None, std=None):
    return Row("toy", data, method, metric, value, std, 1, published, "full", [], 1.0)


ROWS = [
    row("Deep Sets", "a", "accuracy", 0.8, 0.75, 0.01), row("LSTM", "a", "accuracy", 0.6),
    row("Deep Sets", "b", "accuracy", 0.5), row("LSTM", "b", "accuracy", 0.7),
    row("Deep Sets", "a", "mse", 0.2, 0.1), row("Ours", "a", "mse", 0.05), row("LSTM", "a", "mse", 0.3),
]  # fmt: skip


def test_a_method_beats_others_where_it_is_better_in_every_cell():
    holds, why = beats("Deep Sets", ["LSTM"], [("a", "accuracy"), ("a", "mse")])(Scores(ROWS))
    weak = " (1 within the deviation over seeds, or of one seed each)"  # that of the mse has no deviation
    assert holds and why.startswith(f"in all 2 comparisons{weak}; a accuracy: Deep Sets 0.800, LSTM 0.600")
    holds, why = beats("Deep Sets", ["LSTM"], [("a", "accuracy"), ("b", "accuracy")])(Scores(ROWS))
    assert holds is False and why == f"not in 1 of 2 comparisons{weak}; b accuracy: Deep Sets 0.500, LSTM 0.700"
    assert beats("Deep Sets", ["GRU"], [("a", "accuracy")])(Scores(ROWS)).holds is None


def test_a_number_is_reached_if_it_is_as_good_as_the_value():
    assert reaches("Deep Sets", "a", "accuracy", 0.8)(Scores(ROWS)).holds
    assert reaches("Deep Sets", "a", "mse", 0.1)(Scores(ROWS)) == (False, "a mse: 0.200, the paper 0.100")
    assert reaches("Deep Sets", "c", "accuracy", 0.1)(Scores(ROWS)).holds is None


def test_lines_of_the_scoreboard_have_paper_rerun_and_best():
    heads = [Headline("one", "a", "accuracy"), Headline("two", "a", "mse"), Headline("three", "b", "accuracy", 0.9)]
    one, two, three = scoreboard("Toy", [*heads, Headline("nothing", "z", "mse")], ROWS)
    assert one == ("Toy", "one", "0.750", "0.800 ± 0.010", "–", True)
    assert two == ("Toy", "two", "0.100", "0.200", "0.0500", False)
    assert three == ("Toy", "three", "0.900 (other data)", "0.500", "–", None)


def test_every_claim_of_every_experiment_is_decided_by_its_rows():
    assert reaches("Deep Sets", "a", "mse", 0.5)(Scores(ROWS)).word == "holds"
    for name in paper.NAMES:
        about = paper.get_experiment(name)
        assert about.headlines and about.claims and about.notes
        for text, check in about.claims:
            assert text and check(Scores([])).word == "not tested"  # nothing is claimed without rows


def test_methods_are_compared_on_the_data_of_the_seeds_that_both_have():
    """A seed with hard data must not count against the one method that has it."""
    one = replace(row("Deep Sets", "a", "mse", 0.5), by_seed={0: 0.1, 1: 0.9})
    other = replace(row("SDM", "a", "mse", 0.3), by_seed={0: 0.3, 2: 0.4})
    assert Scores([one, other]).paired("Deep Sets", "SDM", "a", "mse") == (0.1, 0.3)
    assert all(map(math.isnan, Scores([one]).paired("Deep Sets", "SDM", "a", "mse")))
    task = "random-d32 N=8192"
    found = [replace(r, data=task, experiment="popstats") for r in (one, other)]
    check = paper.get_experiment("popstats").claims[1].check
    assert check(Scores(found)) == (True, f"{task}: 0.33 times the error of SDM")
