"""Learning-rate schedules."""

import pytest

from deepsets.train.run import Rate

from .helpers import fitted


def test_cosine_rises_in_the_warm_up_and_falls_to_nothing():
    rate = Rate("cosine", warmup=0.2)
    assert rate(0.1) == pytest.approx(0.5)
    assert rate(0.2) == pytest.approx(1)
    assert rate(0.6) == pytest.approx(0.5)
    assert rate(1.0) == pytest.approx(0)


def test_plateau_halves_after_epochs_without_a_better_loss():
    rate = Rate("plateau", warmup=0.0, patience=2)
    for value in (1.0, 0.5, 0.6, 0.7, 0.4, 0.9):
        rate.after_epoch(value)
    assert rate(0.5) == 0.5
    rate.after_epoch(0.8)
    assert rate(0.9) == 0.25


def test_the_log_shows_the_rate_of_the_schedule():
    _, constant = fitted(schedule="constant", warmup=0.0, learning_rate=0.02)
    _, cosine = fitted(schedule="cosine", warmup=0.0, learning_rate=0.02)
    assert [row["rate"] for row in constant] == [0.02, 0.02]
    assert 0.02 > cosine[0]["rate"] > cosine[1]["rate"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "linear"}, r"unknown schedule 'linear'; known are cosine, constant, plateau"),
        ({"warmup": 1.0}, r"warmup is a share of the training, in \[0, 1\); found 1.0"),
    ],
)
def test_wrong_schedules_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fitted(**options)
