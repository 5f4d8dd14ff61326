"""The theorems of Deep Sets (Zaheer et al. 2017), appendices A, B and D, as code.

>>> from .. import theory
>>> phi, rho = theory.as_sum(sorted, universe="abc")  # any function of a set is rho of a sum of phi
>>> rho(phi("c") + phi("a"))
['a', 'c']
"""

from .countable import as_sum, as_weighted_sum, decode, encode
from .equivariant import Projection, is_equivariant, project_equivariant
from .examples import (
    Example,
    approximate,
    largest,
    mean,
    monomial_sums,
    pair_product,
    second_largest,
    second_largest_as_printed,
    triple_product,
)  # fmt: skip
from .exponential_family import ExponentialFamily, beta_bernoulli, gamma_poisson, normal
from .power_sums import as_power_sums, from_power_sums, power_sums

__all__ = [
    "Example", "ExponentialFamily", "Projection", "approximate", "as_power_sums", "as_sum", "as_weighted_sum",
    "beta_bernoulli", "decode", "encode", "from_power_sums", "gamma_poisson", "is_equivariant", "largest", "mean",
    "monomial_sums", "normal", "pair_product", "power_sums", "project_equivariant", "second_largest",
    "second_largest_as_printed", "triple_product",
]  # fmt: skip
