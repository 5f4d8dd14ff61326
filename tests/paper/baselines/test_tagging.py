"""Least squares, MBRM, JEC and FastTag against what their formulas say, computed slowly."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.preprocessing import StandardScaler

from paper.baselines.tagging import JEC, MBRM, FastTag, LeastSquares

ALL = [LeastSquares(), MBRM(), JEC(), FastTag()]


def images(count=40, features=5, tags=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, features))
    return x, (x @ rng.normal(size=(features, tags)) + 0.3 * rng.normal(size=(count, tags)) > 0.5).astype(np.uint8)


@pytest.mark.parametrize("tagger", ALL, ids=lambda tagger: type(tagger).__name__)
def test_taggers_find_tags_that_follow_from_the_features(tagger):
    x, y = images(300)
    scores = tagger.fit(x[:200], y[:200]).scores(x[200:])
    assert scores.shape == (100, 4) and np.isfinite(scores).all()
    above = scores[:, :, None] > scores[:, None, :]
    pairs = (y[200:, :, None] > 0) & (y[200:, None, :] == 0)
    assert above[pairs].mean() > 0.7  # chance: 0.5


@pytest.mark.parametrize("tagger", ALL, ids=lambda tagger: type(tagger).__name__)
def test_an_image_does_not_notice_its_neighbours(tagger):
    x, y = images()
    tagger.fit(x, y)
    alone = np.concatenate([tagger.scores(x[i : i + 1]) for i in range(5)])
    np.testing.assert_allclose(tagger.scores(x[:5]), alone, atol=1e-10)


def test_least_squares_is_where_its_objective_is_least():
    x, y = images()
    tagger = LeastSquares(penalty=0.2).fit(x, y)
    scaled = StandardScaler().fit_transform(x)

    def objective(weights):
        weights = weights.reshape(5, 4)
        return np.square(y - scaled @ weights).sum() / len(x) + 0.2 * np.square(weights).sum()

    found = minimize(objective, np.zeros(20))
    np.testing.assert_allclose(tagger.weights.ravel(), found.x, atol=1e-4)


def test_mbrm_equals_the_plain_sum_over_training_images():
    x, y = images(12)
    tagger = MBRM(width=0.5, smoothing=7.0).fit(x, y)
    new = np.random.default_rng(1).normal(size=(3, 5))
    spread = np.mean([np.square(a - b).sum() for a in x for b in x])
    slow = np.zeros((3, 4))
    for i, image in enumerate(new):
        weights = [np.exp(-np.square(image - other).sum() / (0.5 * spread)) for other in x]
        for weight, tags in zip(weights, y, strict=True):
            slow[i] += weight * (7 * tags + y.sum(0)) / (7 + len(y)) / sum(weights)
    np.testing.assert_allclose(tagger.scores(new), slow, atol=1e-12)


def test_jec_takes_the_nearest_image_first_and_then_what_stands_beside_its_tags():
    x = np.array([[0.0], [1.0], [1.5], [9.0], [9.5]])
    y = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1], [1, 0, 0, 1]])
    order = np.argsort(-JEC(neighbours=3).fit(x, y).scores(np.array([[0.1]])), kind="stable")[0]
    assert order[:2].tolist() == [0, 1]  # 0 from the nearest; 1 from a neighbour, beside 0; 2 was never beside 0


def test_fasttag_knows_the_expectation_over_lost_tags():
    x, y = images(30)
    tagger = FastTag(corruption=0.4, agreement=1e9, penalty=0.1, steps=1).fit(x, y)
    rng = np.random.default_rng(0)
    lost = np.concatenate([y * (rng.random(y.shape) > 0.4) for _ in range(4000)])
    drawn = np.linalg.lstsq(lost, np.tile(y, (4000, 1)), rcond=None)[0]
    np.testing.assert_allclose(tagger.completion, drawn, atol=0.02)


def test_fasttag_ends_where_its_objective_is_least():
    x, y = images(30, tags=3)
    p, gamma, penalty = 0.3, 0.8, 0.2
    tagger = FastTag(p, gamma, penalty, steps=500).fit(x, y)
    scaled, y = StandardScaler().fit_transform(x), y.astype(float)
    together = y.T @ y / len(y)
    lost = (1 - p) ** 2 * together + p * (1 - p) * np.diag(np.diag(together))

    def objective(both):
        complete, weights = both[:9].reshape(3, 3), both[9:].reshape(5, 3)
        agree = np.square(y @ complete - scaled @ weights).sum() / len(y)
        undone = np.trace(together - 2 * (1 - p) * together @ complete + complete.T @ lost @ complete)
        return agree + penalty * np.square(weights).sum() + gamma * undone

    found = minimize(objective, np.zeros(24))
    np.testing.assert_allclose(tagger.weights.ravel(), found.x[9:], atol=1e-3)


def test_without_losses_fasttag_is_least_squares():
    x, y = images()
    tagger = FastTag(corruption=0.0, agreement=1e9, penalty=0.3).fit(x, y)
    np.testing.assert_allclose(tagger.scores(x), LeastSquares(0.3).fit(x, y).scores(x), atol=1e-5)


def test_balanced_scores_are_those_of_least_squares_in_units_of_each_tag():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(40, 3)), (rng.random((40, 4)) < [0.5, 0.2, 0.05, 0.0]).astype(float)
    plain, balanced = LeastSquares(0.2).fit(x, y).scores(x), LeastSquares(0.2, balance=1.0).fit(x, y).scores(x)
    np.testing.assert_allclose(balanced[:, :3], plain[:, :3] / y[:, :3].std(0))
    np.testing.assert_allclose(balanced[:, 3], plain[:, 3])  # a tag that never came has no deviation
