"""Sum of digits given as symbols: the networks, what they learn, and the figure."""

import pytest

from paper import Record, Trial
from paper.experiments import digits_text
from paper.experiments.digits_text import curve, figure


def test_the_networks_have_the_sizes_of_the_notes():
    counts = [
        sum(p.numel() for p in build().parameters())
        for build in (digits_text.deep_sets, digits_text.lstm, digits_text.gru)
    ]
    assert counts == [4061, 16871, 12911]  # LSTM 4.2 times, GRU 3.2 times those of Deep Sets
    assert [type(layer).__name__ for layer in digits_text.deep_sets().phi] == ["Embedding", "Linear", "Tanh"]


@pytest.mark.slow
def test_text_digits_are_learned_exactly(tmp_path):
    outcome = digits_text.EXPERIMENT.methods["Deep Sets"](Trial(False, 0, tmp_path), "all")
    accuracy = {row.data: row.value for row in outcome.measures}
    assert min(accuracy[f"M={m}"] for m in range(5, 101, 5)) == 1.0
    assert accuracy["M=1000"] >= 0.99


def record(method, seed, values):
    rows = [{"data": f"M={m}", "metric": "accuracy", "value": v} for m, v in values.items()]
    return Record("digits-image", True, method, seed, "", [], parts={"all": {"measures": rows}})


def test_the_curve_is_the_mean_over_the_seeds():
    found = [record("Ours", 0, {1: 0.99, 50: 0.6}), record("Ours", 1, {1: 0.99, 50: 0.8}), record("GRU", 0, {50: 0.0})]
    sizes, mean, deviation = curve(found, "Ours")
    assert sizes.tolist() == [1, 50] and mean.tolist() == pytest.approx([0.99, 0.7])
    assert deviation.tolist() == pytest.approx([0, 0.1])


def test_the_figure_draws_every_method_and_its_bound():
    pytest.importorskip("matplotlib")
    found = [record("Ours", 0, {1: 0.99, 5: 0.95, 50: 0.6}), record("GRU", 0, {5: 0.5, 50: 0.0})]
    (axes,) = figure(found, 50, ("Ours", "Deep Sets")).axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert list(lines) == ["Ours", "(1 − p)^M, p = 1.00 %", "GRU"]
    assert lines["(1 − p)^M, p = 1.00 %"].get_ydata()[-1] == pytest.approx(0.99**50)
