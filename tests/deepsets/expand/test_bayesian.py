"""Bayesian Sets against marginal likelihoods computed another way."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import gammaln, multigammaln
from scipy.stats import invwishart, norm

from deepsets.expand import BayesianSets
from deepsets.expand.bayesian import PRIOR_ROWS


def table(seed: int, rows: int = 9, columns: int = 5) -> np.ndarray:
    out = np.random.default_rng(seed).integers(0, 2, size=(rows, columns))
    out[0], out[1] = 0, 1  # no column is constant
    return out


def by_quadrature(rows: np.ndarray, alpha: np.ndarray, beta: np.ndarray) -> float:
    """log p(rows): for each feature the integral over θ of θ^ones (1 − θ)^zeros under a Beta."""
    total = 0.0
    for j in range(rows.shape[1]):
        ones, zeros, a, b = rows[:, j].sum(), (1 - rows[:, j]).sum(), alpha[j], beta[j]
        # θ = sin² t takes the poles of the Beta away from the ends
        function = lambda t: 2 * np.sin(t) ** (2 * (a + ones) - 1) * np.cos(t) ** (2 * (b + zeros) - 1)  # noqa: B023, E731
        total += np.log(quad(function, 0, np.pi / 2)[0]) - (gammaln(a) + gammaln(b) - gammaln(a + b))
    return total


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.floats(1.5, 5), st.integers(1, 4))
def test_beta_scores_are_ratios_of_marginal_likelihoods(seed, strength, size):
    x = table(seed)
    expander = BayesianSets("beta", strength=strength).fit(items=x)
    alpha, beta = strength * x.mean(0), strength * (1 - x.mean(0))
    query = list(np.random.default_rng(seed).permutation(len(x))[:size])
    p = lambda rows: by_quadrature(rows, alpha, beta)  # noqa: E731
    slow = [p(np.vstack([x[query], x[[c]]])) - p(x[query]) - p(x[[c]]) for c in range(len(x))]
    np.testing.assert_allclose(expander.score(query), slow, rtol=1e-4, atol=1e-4)
    together = p(x[query]) - sum(p(x[[m]]) for m in query)
    assert expander.set_score(query) == pytest.approx(together, rel=1e-5, abs=1e-5)


def niw(rows: np.ndarray, mean: np.ndarray, lam: float, psi: np.ndarray, nu: float) -> float:
    """log p(rows) under a normal-inverse-Wishart prior: the textbook's closed form, with full matrices."""
    n, d = rows.shape
    centre = rows.mean(0)
    scatter = (rows - centre).T @ (rows - centre)
    posterior = psi + scatter + lam * n / (lam + n) * np.outer(centre - mean, centre - mean)
    return (
        multigammaln((nu + n) / 2, d)
        - multigammaln(nu / 2, d)
        + nu / 2 * np.linalg.slogdet(psi)[1]
        - (nu + n) / 2 * np.linalg.slogdet(posterior)[1]
        + d / 2 * np.log(lam / (lam + n))
        - n * d / 2 * np.log(np.pi)
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.5, 5), st.integers(1, 6), st.integers(1, 4))
def test_gauss_scores_are_ratios_of_marginal_likelihoods(seed, strength, size, width):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(12, width)) @ rng.normal(size=(width, width)) + rng.normal(size=width)
    expander = BayesianSets("gauss", strength=strength).fit(items=x)
    prior = (x.mean(0), PRIOR_ROWS, strength * np.cov(x.T, bias=True).reshape(width, width), width + 1 + strength)
    query = list(rng.permutation(len(x))[:size])
    p = lambda rows: niw(rows, *prior)  # noqa: E731
    slow = [p(np.vstack([x[query], x[[c]]])) - p(x[query]) - p(x[[c]]) for c in range(len(x))]
    np.testing.assert_allclose(expander.score(query), slow, rtol=1e-6, atol=1e-6)
    together = p(x[query]) - sum(p(x[[m]]) for m in query)
    assert expander.set_score(query) == pytest.approx(together, rel=1e-6, abs=1e-6)


def test_the_textbook_form_itself_is_the_integral():
    rows, nu, lam = np.array([[0.3], [1.1]]), 4.0, 2.0
    mu, log_var = np.meshgrid(np.linspace(-12, 12, 2001), np.linspace(-5, 7, 401))
    var = np.exp(log_var)
    inside = norm.pdf(mu, 0.2, np.sqrt(var / lam)) * invwishart.pdf(var.ravel(), nu, 1.5).reshape(var.shape) * var
    for row in rows[:, 0]:
        inside = inside * norm.pdf(row, mu, np.sqrt(var))
    slow = np.trapezoid(np.trapezoid(inside, mu[0], axis=1), log_var[:, 0])
    assert niw(rows, np.array([0.2]), lam, np.array([[1.5]]), nu) == pytest.approx(np.log(slow), abs=1e-3)


def test_a_set_score_is_the_sum_of_scores_in_any_order():
    x = table(3)
    for expander in (BayesianSets("beta").fit(items=x), BayesianSets("gauss").fit(items=x + np.eye(9, 5))):
        for order in ([2, 5, 7, 3], [7, 3, 2, 5]):
            steps = sum(expander.score(order[:m], [order[m]])[0] for m in range(1, 4))
            assert expander.set_score(order) == pytest.approx(steps, rel=1e-4, abs=1e-4)


def test_gauss_finds_the_rest_of_a_cluster_and_the_odd_member():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(30, 5)) * 5
    x = np.repeat(centres, 10, 0) + rng.normal(size=(300, 5)) * 0.3
    expander = BayesianSets().fit(items=x)
    assert expander.kind_ == "gauss"
    far = 10 * int(np.linalg.norm(centres - centres[0], axis=1).argmax())
    assert expander.fits([0, 1, far, 2, 3]).argmin() == 2
    found = [candidate.element for candidate in expander.expand([0, 1, 2, 3], k=6)]
    assert set(found) == set(range(4, 10))


def test_sparse_and_dense_features_are_the_same_to_it():
    x = table(1)
    dense, sparse = BayesianSets().fit(items=x), BayesianSets().fit(items=sp.csc_array(x))
    np.testing.assert_array_equal(dense.score([2, 3]), sparse.score([2, 3]))
    assert dense.kind_ == sparse.kind_ == "beta"


def test_equal_items_tie_exactly():
    x = np.tile(table(2, rows=40, columns=60), (25, 1))
    scores = BayesianSets().fit(items=x).score([3, 4, 5]).reshape(25, 40)
    assert (scores == scores[0]).all()


def test_features_that_never_differ_tell_nothing():
    x = table(4)
    wide = np.hstack([x, np.zeros((9, 1), int), np.ones((9, 1), int)])
    np.testing.assert_allclose(
        BayesianSets("beta").fit(items=wide).score([2, 3]), BayesianSets("beta").fit(items=x).score([2, 3])
    )
    real = np.random.default_rng(0).normal(size=(9, 3))
    np.testing.assert_allclose(
        BayesianSets("gauss").fit(items=np.hstack([real, np.full((9, 1), 7.0)])).score([2, 3]),
        BayesianSets("gauss").fit(items=real).score([2, 3]),
        rtol=1e-6,
    )


def test_what_it_refuses():
    with pytest.raises(ValueError, match="model must be 'auto', 'beta' or 'gauss', found 'wishart'"):
        BayesianSets("wishart").fit(items=table(0))
    with pytest.raises(ValueError, match="strength must be positive, found 0"):
        BayesianSets(strength=0).fit(items=table(0))
    with pytest.raises(ValueError, match="'beta' needs features that are 0 or 1"):
        BayesianSets("beta").fit(items=table(0) / 2)
    with pytest.raises(ValueError, match="features that are 0 or 1, but other numbers were given"):
        BayesianSets().fit(items=table(0)).score([1], np.full((1, 5), 0.5))
    with pytest.raises(ValueError, match="nothing is known about the items"):
        BayesianSets().fit(items=["oak"])
    with pytest.raises(ValueError, match="all items have the same features"):
        BayesianSets("gauss").fit(items=np.ones((4, 2)))
