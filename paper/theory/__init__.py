"""The theorems of Deep Sets (Zaheer et al. 2017), appendices A and B, made executable.

>>> from .. import theory
>>> phi, rho = theory.as_sum(sorted, universe="abc")  # any function of a set is rho of a sum of phi
>>> rho(phi("c") + phi("a"))
['a', 'c']
"""

from .countable import as_sum, decode, encode
from .equivariant import Projection, is_equivariant, project_equivariant
from .examples import (
    Example,
    largest,
    mean,
    pair_product,
    second_largest,
    second_largest_as_printed,
    triple_product,
)
from .power_sums import as_power_sums, from_power_sums, power_sums

__all__ = [
    "Example",
    "Projection",
    "as_power_sums",
    "as_sum",
    "decode",
    "encode",
    "from_power_sums",
    "is_equivariant",
    "largest",
    "mean",
    "pair_product",
    "power_sums",
    "project_equivariant",
    "second_largest",
    "second_largest_as_printed",
    "triple_product",
]
