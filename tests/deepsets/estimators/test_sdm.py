import tracemalloc

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

from deepsets import Sets
from deepsets.estimators import SupportDistributionMachine

ONE = {"octaves": (0, 0), "widths": (1.0,), "ridges": (1e-3,), "random_state": 0}


def samples(count=60, width=2, seed=0):
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.5, 2, count)
    X = [rng.normal(scale=s, size=(rng.integers(20, 60), width)) for s in scale]
    return X, np.log(scale)


def slow_kernel(a, b, bandwidth):
    pairs = [[((x[:, None] - y) ** 2).sum(-1) for y in b] for x in a]
    return np.array([[np.exp(-0.5 * p / bandwidth**2).mean() for p in row] for row in pairs])


def scaled(X, train):
    members = np.concatenate(train)
    return [(x - members.mean(0)) / members.std(0) for x in X]


def test_the_machine_equals_ridge_regression_on_mean_embeddings_written_out():
    X, y = samples(24)
    train, asked = X[:18], X[18:]
    machine = SupportDistributionMachine(**ONE).fit(train, y[:18])
    turn = machine._frequencies.numpy() / machine._bandwidth(0)
    angles = [x @ turn for x in scaled(X, train)]
    points = np.array([np.r_[np.cos(a).mean(0), np.sin(a).mean(0)] for a in angles]) / turn.shape[1] ** 0.5
    squared = np.square(points[:, None] - points).sum(-1)
    unit = np.median(squared[:18, :18][~np.eye(18, dtype=bool)])
    kernel = np.exp(-squared / (2 * unit))
    dual = np.linalg.solve(kernel[:18, :18] + 1e-3 * np.eye(18), y[:18] - y[:18].mean())
    np.testing.assert_allclose(machine.predict(asked), kernel[18:, :18] @ dual + y[:18].mean(), atol=1e-3)


def test_random_frequencies_come_close_to_the_double_loop_over_members():
    X, _ = samples(12)
    machine = SupportDistributionMachine(features=5_000, **ONE | {"octaves": (-1, 2)}).fit(X, np.arange(12.0))
    for octave in (-1, 0, 2):
        wanted = slow_kernel(scaled(X, X), scaled(X, X), machine._bandwidth(octave))
        np.testing.assert_allclose(machine._inner(octave, np.arange(12))[0], wanted, atol=0.03)


def test_the_kernel_is_positive_semi_definite():
    X, y = samples(30)
    machine = SupportDistributionMachine(**ONE).fit(X, y)
    inner, own = machine._inner(0, np.arange(30))
    kernel = np.exp(-np.maximum(own[:, None] + own - 2 * inner, 0) / (2 * machine._unit))
    assert np.linalg.eigvalsh(kernel).min() > -1e-6


def test_it_learns_beyond_the_sets_its_grid_was_tried_on():
    X, y = samples(200)
    machine = SupportDistributionMachine(search=60, random_state=0).fit(X[:150], y[:150])
    assert machine.score(X[150:], y[150:]) > 0.95
    assert machine.choice_.width in machine.widths and machine.cv_error_ < 0.1 * y.var()


def test_members_have_no_order_and_sets_no_neighbours():
    X, y = samples(40)
    machine = SupportDistributionMachine(random_state=0).fit(X, y)
    turned = [x[::-1].copy() for x in X]
    np.testing.assert_allclose(machine.predict(turned), machine.predict(X), atol=1e-3)
    np.testing.assert_allclose(machine.predict(X[3:4]), machine.predict(X)[3:4], atol=1e-6)


def test_it_is_a_regressor_like_the_others():
    X, y = samples(45)
    machine = SupportDistributionMachine(**ONE)
    assert clone(machine).get_params() == machine.get_params()
    sets = Sets.from_list([torch.tensor(x, dtype=torch.float32) for x in X])
    assert cross_val_score(machine, sets, y, cv=3).mean() > 0.7
    assert machine.fit(sets, np.stack([y, -y], 1)).predict(sets).shape == (45, 2)
    table = pd.DataFrame(np.concatenate(X), columns=["a", "b"])
    table["set"] = np.repeat(np.arange(45), [len(x) for x in X])
    by = SupportDistributionMachine(by="set", **ONE).fit(table, y)
    np.testing.assert_allclose(by.predict(table), machine.fit(X, y).predict(X), atol=1e-3)


def test_equal_sets_do_no_harm():
    X = [np.ones((3, 1))] * 6
    found = SupportDistributionMachine(random_state=0).fit(X, np.arange(6.0)).predict(X)
    np.testing.assert_allclose(found, 2.5, atol=0.2)


def test_what_does_not_fit_in_memory_is_refused_with_sizes():
    X, y = samples(60)
    with pytest.raises(MemoryError, match=r"60 sets need .* 60 x 60 doubles.*0\.0 GB.*Give at most 55 sets"):
        SupportDistributionMachine(memory=1e-4).fit(X, y)


def test_bad_input_is_named():
    X, y = samples(5)
    machine = SupportDistributionMachine(**ONE)
    with pytest.raises(NotFittedError, match="call fit first"):
        machine.predict(X)
    with pytest.raises(ValueError, match="features must be an integer of at least 1, found None"):
        SupportDistributionMachine(features=None).fit(X, y)
    with pytest.raises(ValueError, match="set 1 is empty"):
        machine.fit([X[0], np.zeros((0, 2))], y[:2])
    with pytest.raises(ValueError, match="holds tokens"):
        machine.fit([["a"], ["b"]], y[:2])
    with pytest.raises(ValueError, match="two sets or more, found 1"):
        machine.fit(X[:1], y[:1])
    with pytest.raises(ValueError, match="target of set 2 is not a finite number"):
        machine.fit(X, [1, 2, np.nan, 3, 4])
    with pytest.raises(ValueError, match="members with 1 features, but SupportDistributionMachine was fitted with 2"):
        machine.fit(X, y).predict([x[:, :1] for x in X])


def test_a_fit_needs_no_more_memory_than_its_check_says():
    """At most four matrices of sets x sets at a time; tracemalloc counts numpy's arrays."""
    rng, count = np.random.default_rng(0), 900
    X, y = list(rng.normal(size=(count, 3, 1))), rng.normal(size=count)
    model = SupportDistributionMachine(features=2, octaves=(0, 1), widths=(1, 2), ridges=(0.1, 1), random_state=0)
    tracemalloc.start()
    try:
        model.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 2 * 8 * count**2 < peak < 4 * 8 * count**2
