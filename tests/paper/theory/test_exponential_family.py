"""Bayesian Sets for exponential families, against numerical integrals over the parameter."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from paper.theory import ExponentialFamily, beta_bernoulli, gamma_poisson, normal


def coin(x, query):
    def marginal(values):
        def density(p):
            return stats.beta.pdf(p, 2.0, 3.0) * np.prod([p if v else 1 - p for v in values])

        return integrate.quad(density, 0, 1)[0]

    return math.log(marginal([*query, x]) / marginal(query) / marginal([x]))


def counts(x, query):
    def marginal(values):
        def density(rate):
            return stats.gamma.pdf(rate, 2.0, scale=1 / 1.5) * np.prod(stats.poisson.pmf(values, rate))

        return integrate.quad(density, 0, 60)[0]

    return math.log(marginal([*query, x]) / marginal(query) / marginal([x]))


def gauss(x, query):
    def marginal(values):
        def density(mean):
            return stats.norm.pdf(mean, scale=0.5**-0.5) * np.prod(stats.norm.pdf(values, mean))

        return integrate.quad(density, -20, 20)[0]

    return math.log(marginal([*query, x]) / marginal(query) / marginal([x]))


CASES = [
    (beta_bernoulli(2.0, 3.0), coin, [1.0, 1.0, 0.0], (1.0, 0.0)),
    (gamma_poisson(2.0, 1.5), counts, [3.0, 5.0], (0.0, 4.0, 9.0)),
    (normal(1, precision=0.5), gauss, [0.5, 1.5, 1.0], (-1.0, 1.2)),
]


@pytest.mark.parametrize(("family", "oracle", "query", "candidates"), CASES, ids=["coin", "counts", "normal"])
def test_scores_are_pointwise_mutual_informations(family, oracle, query, candidates):
    column = (lambda v: torch.tensor(v)[:, None]) if oracle is gauss else torch.tensor
    for x in candidates:
        one = torch.tensor([x]) if oracle is gauss else torch.tensor(x)
        assert float(family.score(one, column(query))) == pytest.approx(oracle(x, query), abs=1e-4)


def test_the_score_of_a_set_is_the_sum_of_the_scores_of_its_elements_in_any_order():
    family, x = gamma_poisson(2.0, 1.5), torch.tensor([3.0, 0.0, 5.0, 1.0])
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        steps = [family.score(x[order[m]], x[order[:m]]) for m in range(1, 4)]
        torch.testing.assert_close(sum(steps), family.set_score(x), rtol=1e-4, atol=1e-4)


def test_the_printed_form_with_m_plus_1_is_another_number():
    """Appendix D prints h(α + φ(x), M + 1) for h(α + φ(x), M_0 + 1)."""
    family, query, x = gamma_poisson(2.0, 1.5), torch.tensor([3.0, 5.0]), torch.tensor(4.0)
    as_printed = (
        family.h(family.alpha + 12, torch.tensor(4.5)) + family.h(family.alpha, torch.tensor(1.5))
        - family.h(family.alpha + 8, torch.tensor(3.5)) - family.h(family.alpha + 4, torch.tensor(3.0))
    )  # fmt: skip
    right = family.score(x, query)
    assert float(right) == pytest.approx(counts(4.0, [3.0, 5.0]), abs=1e-4)
    assert abs(float(as_printed - right)) > 0.5


def test_probabilities_of_a_coin_sum_to_one():
    family = beta_bernoulli(0.7, 1.9)
    sequences = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3)
    assert float(sum(family.log_probability(s).exp() for s in sequences)) == pytest.approx(1, abs=1e-5)
    assert isinstance(family, ExponentialFamily)
