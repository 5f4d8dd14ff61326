r"""Bayesian Sets for any exponential family with a conjugate prior (appendix D), and the slips of that appendix.

With $p(x|θ) = \exp(⟨φ(x), θ⟩ − g(θ))$ and $p(θ|α, M_0) = \exp(⟨θ, α⟩ − M_0 g(θ) − h(α, M_0))$, all probabilities of
sets are differences of h: functions of the sum of φ over the set, and of its size.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

LogNormaliser = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class ExponentialFamily:
    r"""An exponential family with its conjugate prior: α (K,) and $M_0$ (`count`).

    `phi` is the statistic of elements, (…) or (…, d) → (…, K), and `h` the log-normaliser of the prior,
    $h(α, M_0) = \log ∫ \exp(⟨θ, α⟩ − M_0 g(θ))\, dθ$, (…, K), (…) → (…).

    >>> coin = beta_bernoulli(1.0, 1.0)  # a uniform prior: after two heads, heads has the probability 3/4
    >>> heads, tails = torch.tensor(1.0), torch.tensor(0.0)
    >>> query = torch.tensor([1.0, 1.0])
    >>> (coin.score(heads, query).exp() / 2, coin.score(tails, query).exp() / 2)  # each is 1/2 a priori
    (tensor(0.7500), tensor(0.2500))
    """

    phi: Callable[[Tensor], Tensor]
    h: LogNormaliser
    alpha: Tensor
    count: float

    def log_probability(self, x: Tensor) -> Tensor:
        r"""Return $\log p(X|α, M_0) = h(α + \sum_m φ(x_m), M_0 + M) − h(α, M_0)$ of a set of M elements."""
        statistic = self.phi(x)
        return self._h(statistic.sum(0), len(statistic)) - self._h(torch.zeros_like(self.alpha), 0)

    def score(self, x: Tensor, query: Tensor) -> Tensor:
        r"""Return $s(x|X) = \log p(X ∪ \{x\}) − \log p(X) − \log p(\{x\})$ of a candidate x.

        In terms of h:  $h(α + φ(X) + φ(x), M_0 + M + 1) + h(α, M_0) − h(α + φ(X), M_0 + M) − h(α + φ(x), M_0 + 1)$.
        The paper prints M + 1 for $M_0 + 1$ in the last term, here and in $s(X)$.
        """
        one, many = self.phi(x[None])[0], self.phi(query)
        together = self._h(many.sum(0) + one, len(many) + 1) + self._h(torch.zeros_like(self.alpha), 0)
        return together - self._h(many.sum(0), len(many)) - self._h(one, 1)

    def set_score(self, x: Tensor) -> Tensor:
        r"""Return $S(X) = \log p(X) − \sum_m \log p(\{x_m\})$: how well the elements go together."""
        return self.log_probability(x) - sum((self.log_probability(one[None]) for one in x), torch.zeros(()))

    def _h(self, statistic: Tensor, count: int) -> Tensor:
        return self.h(self.alpha + statistic, torch.as_tensor(self.count + count, dtype=self.alpha.dtype))


def beta_bernoulli(positive: float, negative: float) -> ExponentialFamily:
    r"""Coins with the prior Beta(positive, negative), the model of Bayesian Sets: φ(1) = (1, 0), φ(0) = (0, 1).

    $h(β^+, β^-) = \log Γ(β^+) + \log Γ(β^-) − \log Γ(β^+ + β^-)$; the paper prints $− Γ(β)$, without the logarithm, and
    defines h itself without one.
    """

    def h(alpha: Tensor, count: Tensor) -> Tensor:
        return alpha.lgamma().sum(-1) - alpha.sum(-1).lgamma()

    return ExponentialFamily(
        lambda x: torch.stack([x, 1 - x], -1), h, torch.tensor([positive, negative]), positive + negative
    )


def gamma_poisson(shape: float, rate: float) -> ExponentialFamily:
    r"""Counts with the prior Gamma(shape, rate) on their rate: φ(x) = x, $h(a, b) = \log Γ(a) − a \log b$.

    The base measure 1/x! is left out: it cancels in scores. $g(θ) = e^θ$ and $M_0 = b$.
    """

    def h(alpha: Tensor, count: Tensor) -> Tensor:
        return alpha[..., 0].lgamma() - alpha[..., 0] * count.log()

    return ExponentialFamily(lambda x: x[..., None], h, torch.tensor([shape]), rate)


def normal(dimension: int, precision: float = 1.0) -> ExponentialFamily:
    r"""Vectors of unit variance around a mean with the prior N(0, I / precision): φ(x) = x.

    $h(α, M_0) = |α|² / 2M_0 − \frac d2 \log M_0$, up to a constant, which cancels in scores.
    """

    def h(alpha: Tensor, count: Tensor) -> Tensor:
        return alpha.square().sum(-1) / (2 * count) - dimension / 2 * count.log()

    return ExponentialFamily(lambda x: x, h, torch.zeros(dimension), precision)
