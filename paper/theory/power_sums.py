"""A set of M real numbers as its M + 1 power sums (Lemma 4, appendix A.2)."""

import torch
from torch import Tensor


def power_sums(x: Tensor) -> Tensor:
    r"""The embedding of Lemma 4:  $E_q(X) = \sum_m x_m^q$ for q = 0, …, M.

    >>> power_sums(torch.tensor([[0.5, 1.0, 0.0], [1.0, 1.0, 1.0]]))
    tensor([[3.0000, 1.5000, 1.2500, 1.1250],
            [3.0000, 3.0000, 3.0000, 3.0000]], dtype=torch.float64)

    Shapes: (…, M) → (…, M + 1), always in float64, because the inverse, `from_power_sums`, needs every digit. The
    empty set has the power sums [0]. Differentiable in x.
    """
    if x.ndim == 0:
        raise ValueError("found a single number, wanted sets of shape (…, M).")
    refuse_infinite(x, "the elements")
    return powers(x, x.shape[-1]).sum(-2)


def powers(x: Tensor, degree: int) -> Tensor:
    """[1, x, x², …]: (…) → (…, degree + 1), the phi of Theorem 7."""
    return x.double().unsqueeze(-1) ** torch.arange(degree + 1, device=x.device)


def refuse_infinite(x: Tensor, what: str) -> None:
    """Names the first entry that is nan or infinite."""
    bad = ~x.isfinite()
    if bad.any():
        place = tuple(bad.nonzero()[0].tolist())
        raise ValueError(f"{what} must be finite: found {x[place].item()} at {list(place)} of shape {tuple(x.shape)}.")
