"""The five worked examples of appendix A as pairs of phi and rho, the fifth corrected, and Theorem 9."""

import math
from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import NamedTuple

import torch
from torch import Tensor

Map = Callable[[Tensor], Tensor]


class Example(NamedTuple):
    r"""A function of a set, `exact`, and the phi and rho that compute it:  $f(X) = ρ(\sum_{x ∈ X} φ(x))$.

    >>> mean(torch.tensor([1.0, 2.0, 6.0]))
    tensor(3.)

    Shapes: phi (…) → (…, K), rho (…, K) → (…), exact (…, M) → (…), and the example itself (…, M) → (…).
    """

    name: str
    phi: Map
    rho: Map
    exact: Map

    def __call__(self, x: Tensor) -> Tensor:
        """ρ of the sum of φ over the elements of each set: (…, M) → (…)."""
        return self.rho(self.phi(x).sum(-2))


def _cubes(x: Tensor) -> Tensor:
    return torch.stack([x, x**2, x**3], -1)


def _of(rho: Callable[..., Tensor]) -> Map:
    """Take the columns of z, (…, K), as arguments."""
    return lambda z: rho(*z.unbind(-1))


pair_product = Example(
    "x1 x2 (x1 + x2 + 3), for sets of 2",
    _cubes,
    _of(lambda u, v, w: u * v - w + 3 * (u**2 - v) / 2),
    lambda x: x.prod(-1) * (x.sum(-1) + 3),
)
triple_product = Example(
    "x1 x2 x3 + x1 + x2 + x3, for sets of 3",
    _cubes,
    _of(lambda u, v, w: (u**3 + 2 * w - 3 * u * v) / 6 + u),
    lambda x: x.prod(-1) + x.sum(-1),
)
mean = Example(
    "mean",
    lambda x: torch.stack([torch.ones_like(x), x], -1),
    _of(lambda u, v: v / u.clamp(min=1)),  # u counts the elements; the mean of none is 0, as everywhere in this library
    lambda x: x.sum(-1) / max(x.shape[-1], 1),
)


def _second(x: Tensor) -> Tensor:
    return x.sort(-1).values[..., -2]


def _exp(alpha: float, x: Tensor, power: int = 1) -> Tensor:
    """e^(αx), for x whose e^(power·αx) stays well inside the format: a tenth of the exponents is left for the sums."""
    limit = 0.9 * math.log(torch.finfo(x.dtype).max) / power
    size = alpha * x
    if not bool((size.abs() <= limit).all()):  # also refuses nan
        worst = x.flatten()[size.abs().nan_to_num(nan=math.inf).argmax()].item()
        raise ValueError(
            f"found the element {worst:g}: alpha = {alpha:g} times an element must stay within ±{limit:.4g} in "
            f"{x.dtype}, so that sums of exponentials neither overflow nor vanish. Take a smaller alpha, or scale x."
        )
    return size.exp()


def largest(alpha: float) -> Example:
    r"""The largest element, nearly:  $φ(x) = [e^{αx}, x e^{αx}]$, $ρ([u, v]) = v/u$.

    >>> largest(alpha=100)(torch.tensor([0.2, 0.9, 0.5], dtype=torch.float64))
    tensor(0.9000, dtype=torch.float64)

    The answer is a mean of the elements, weighted towards the largest: never above it, and below it by no more than
    $\log(M)/α$ for a set of M. phi refuses elements with |αx| > 638.8 (79.85 in float32): their $e^{αx}$ comes near the
    end of the format. The empty set has no largest element: nan.
    """

    def phi(x: Tensor) -> Tensor:
        weight = _exp(alpha, x)
        return torch.stack([weight, x * weight], -1)

    return Example("largest", phi, _of(lambda u, v: v / u), lambda x: x.amax(-1))


def second_largest_as_printed(alpha: float) -> Example:
    r"""The paper's fifth example as it is printed. It gives the largest element, not the second largest.

    >>> second_largest_as_printed(alpha=20)(torch.tensor([0.1, 0.6, 0.9], dtype=torch.float64))
    tensor(0.8993, dtype=torch.float64)

    The paper prints $φ(x) = [e^{αx}, x e^{αx}]$ and $ρ([u, v]) = (v - m e^{αm}) / (u - e^{αm})$ with $m = v/u$, the
    estimate of the largest, to take the largest out of both sums and divide again. But $v = mu$, so
    $v - m e^{αm} = m (u - e^{αm})$, and the fraction is m for every α (0/0 or noise where $e^{αm}$ rounds to u).
    """

    def rho(u: Tensor, v: Tensor) -> Tensor:
        m = v / u
        return (v - m * (alpha * m).exp()) / (u - (alpha * m).exp())

    return Example("second largest, as printed", largest(alpha).phi, _of(rho), _second)


def second_largest(alpha: float) -> Example:
    r"""The second largest element, nearly:  $φ(x) = [e^{αx}, e^{2αx}]$, $ρ([u, s]) = \log((u^2 - s) / 2u) / α$.

    >>> second_largest(alpha=30)(torch.tensor([0.1, 0.6, 0.9], dtype=torch.float64))
    tensor(0.6000, dtype=torch.float64)

    $(u^2 - s)/2$ is the sum of $e^{αx}e^{αy}$ over all pairs, where the two largest win; u is the sum over all
    elements, where the largest wins; their ratio tends to $e^{α·second}$. The answer
    lies between $second - \log(2)/α$ and $second + \log(M-1)/α$.

    $u^2 - s$ loses the second to rounding where α times the gap below the largest is over 32 (12 in float32). There rho
    raises a ValueError, as for sets of fewer than two elements. phi refuses |αx| > 319.4 (39.93 in float32).
    """

    def phi(x: Tensor) -> Tensor:
        weight = _exp(alpha, x, power=2)
        return torch.stack([weight, weight * weight], -1)

    def rho(z: Tensor) -> Tensor:
        u, s = z.unbind(-1)
        pairs = (u * u - s) / 2
        lost = pairs <= 50 * torch.finfo(z.dtype).eps * u * u
        if lost.any():
            raise ValueError(
                f"{int(lost.sum())} of {lost.numel()} sets show no second element: they have fewer than 2 elements, or "
                f"the gap below their largest, times alpha = {alpha:g}, is more than {z.dtype} can resolve "
                f"(32 in float64, 12 in float32). Take a smaller alpha."
            )
        return (pairs / u).log() / alpha

    return Example("second largest", phi, rho, _second)


def monomial_sums(x: Tensor, degree: int) -> Tensor:
    r"""Sums over a set of all monomials of its vectors, of degree 1 to `degree`: the φ of Theorem 9.

    >>> monomial_sums(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), degree=2)  # x, y, x², xy, y²
    tensor([ 4.,  6., 10., 14., 20.], dtype=torch.float64)

    Shapes: (…, M, d) → (…, K), float64. With `degree` ≥ M every symmetric polynomial is a polynomial of these sums.
    """
    columns = [
        torch.stack([x[..., i].double() for i in chosen], -1).prod(-1).sum(-1)
        for order in range(1, degree + 1)
        for chosen in combinations_with_replacement(range(x.shape[-1]), order)
    ]
    return torch.stack(columns, -1)


def approximate(
    f: Callable[[Tensor], Tensor], samples: Tensor, degree: int
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    r"""Theorem 9: approximate an invariant function of M vectors by $ρ(\sum_m φ(x_m))$ with a polynomial ρ.

    f maps (…, M, d) → (…); ρ is fitted by least squares on `samples`, (N, M, d). The error falls as the degree of the
    polynomial rises (Stone-Weierstrass). Returned are the sum of φ over sets, (…, M, d) → (…, K), and ρ, (…, K) → (…).

    >>> source = torch.Generator().manual_seed(0)
    >>> train, test = torch.rand(2, 2000, 3, 2, generator=source, dtype=torch.float64)
    >>> def spread(x):  # of the lengths of three vectors
    ...     return x.norm(dim=-1).amax(-1) - x.norm(dim=-1).amin(-1)
    >>> for degree in (1, 2, 4):
    ...     sums, rho = approximate(spread, train, degree)
    ...     print(f"{(rho(sums(test)) - spread(test)).abs().mean():.2f}")
    0.20
    0.07
    0.03
    """
    dimension = samples.shape[-1]
    orders = [o for o in range(1, degree + 1) for _ in combinations_with_replacement(range(dimension), o)]

    def sums(x: Tensor) -> Tensor:
        return monomial_sums(x, degree)

    def terms(z: Tensor) -> Tensor:
        """Products of sums whose total degree in the elements is at most `degree`."""
        found = [torch.ones_like(z[..., 0])]
        for count in range(1, degree + 1):
            for chosen in combinations_with_replacement(range(len(orders)), count):
                if sum(orders[i] for i in chosen) <= degree:
                    found.append(z[..., list(chosen)].prod(-1))
        return torch.stack(found, -1)

    weights = torch.linalg.lstsq(terms(sums(samples)), f(samples).double()[:, None], driver="gelsd").solution[:, 0]
    return sums, lambda z: terms(z) @ weights
