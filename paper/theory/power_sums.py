"""Sets of real numbers as power sums, and the inverse (Lemmas 4 and 6, Theorem 7, appendix A.2)."""

import math
from collections.abc import Callable

import torch
from torch import Tensor


def power_sums(x: Tensor) -> Tensor:
    r"""The embedding of Lemma 4:  $E_q(X) = \sum_m x_m^q$ for q = 0, …, M.

    >>> power_sums(torch.tensor([[0.5, 1.0, 0.0], [1.0, 1.0, 1.0]]))
    tensor([[3.0000, 1.5000, 1.2500, 1.1250],
            [3.0000, 3.0000, 3.0000, 3.0000]], dtype=torch.float64)

    Shapes: (…, M) → (…, M + 1), in float64, because the inverse, `from_power_sums`, needs every digit.
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


def real_roots(z: Tensor) -> Tensor:
    """(B, M + 1) power sums of M ≥ 1 numbers of size about 1 → (B, M) numbers, ascending."""
    size = z.shape[-1] - 1
    centre = z[:, 1:2] / size
    # About their mean, numbers with variance v lie within sqrt((M - 1) v) (Samuelson). Rounding hides v below 1e-16.
    variance = z[:, 2:3] / size - centre**2 if size > 1 else torch.zeros_like(centre)
    radius = (variance.clamp(min=0) * (size - 1)).sqrt() + 1e-8
    shifted = torch.stack([_shifted(z, -centre[:, 0], q) for q in range(size + 1)], -1)
    unit = (radius ** torch.arange(size + 1, device=z.device)).clamp(min=1e-300)
    # Where the radius is small, rounding may leave power sums that no numbers in [-1, 1] have.
    start = centre + radius * _interlaced((shifted / unit).clamp(-size, size))
    return _polished(start, z).sort(-1).values


def _shifted(z: Tensor, by: Tensor, q: int) -> Tensor:
    """The q-th power sum of all x + by, by the binomial theorem: (B, M + 1), (B,) → (B,)."""
    terms = [math.comb(q, k) * by ** (q - k) * z[:, k] for k in range(q + 1)]
    return torch.stack(terms).sum(0)


def _interlaced(p: Tensor) -> Tensor:
    """(B, M + 1) power sums of numbers in [-1, 1] → (B, M) numbers in [-1, 1], ascending.

    Let Q_k be the (M - k)-th derivative of ∏(y - y_m), made monic. The k-th power sum enters Q_k only as its constant,
    and Q_k has one root in each gap between those of Q_{k-1} (Rolle): climb from Q_1 to Q_M, and in each gap bisect.
    Where roots repeat, rounding may turn two of them complex. The constant is therefore moved to the nearest value for
    which every maximum is ≥ 0 and every minimum ≤ 0.
    """
    size = p.shape[-1] - 1
    one = torch.ones_like(p[:, :1])
    elementary = [one]  # the elementary symmetric polynomials e_0, e_1, …, each (B, 1)
    constants = [one]  # Q_k(0), each (B, 1)
    roots = p[:, :0]  # of Q_{k-1}, (B, k - 1)
    for k in range(1, size + 1):
        terms = [(-1) ** (i - 1) * elementary[k - i] * p[:, i : i + 1] for i in range(1, k + 1)]
        constant = (-1) ** k * torch.stack(terms).sum(0) / (k * math.comb(size, k))  # Newton-Girard
        coefficients = [math.comb(k, j) * constants[j] for j in range(k)]
        if k > 1:
            extremes = -_horner([*coefficients, torch.zeros_like(one)], roots)
            highest = extremes[:, k % 2 :: 2].amin(-1, keepdim=True)  # minima: the last root, and every other
            maxima = extremes[:, (k - 1) % 2 :: 2]  # none for k = 2
            lowest = maxima.amax(-1, keepdim=True) if k > 2 else torch.full_like(highest, -math.inf)
            constant = torch.where(lowest > highest, (lowest + highest) / 2, constant.clamp(lowest, highest))
        elementary.append((-1) ** k * constant * math.comb(size, k))
        constants.append(constant)
        roots = _bisected([*coefficients, constant], torch.cat([-one, roots, one], -1))
    return roots


def _horner(coefficients: list[Tensor], y: Tensor) -> Tensor:
    value = torch.zeros_like(y)
    for coefficient in coefficients:
        value = value * y + coefficient
    return value


def _bisected(coefficients: list[Tensor], ends: Tensor) -> Tensor:
    """The root in each gap between the ends, (B, k + 1) → (B, k), of what rises in the last gap, falls before it, …"""
    left, right = ends[:, :-1], ends[:, 1:]
    rises = torch.arange(left.shape[-1] - 1, -1, -1, device=ends.device) % 2 == 0
    for _ in range(30):  # to 1e-9; the polish does the rest
        middle = (left + right) / 2
        beyond = (_horner(coefficients, middle) > 0) == rises
        left, right = torch.where(beyond, left, middle), torch.where(beyond, middle, right)
    return (left + right) / 2


def _polished(x: Tensor, z: Tensor) -> Tensor:
    """Solve E(x) = z from the starts x, (B, M), (B, M + 1) → (B, M), by Levenberg-Marquardt.

    The Jacobian is singular wherever elements repeat; a second-order ("geodesic") correction follows the curved valleys
    there. Rows that have arrived drop out.
    """
    x = x.clone()
    q = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)[:, None]
    rounding = 4 * torch.finfo(x.dtype).eps * z[:, 1:].abs().clamp(min=1)
    miss = _miss(x, z)
    damping = 1e-3 * miss.norm(dim=-1, keepdim=True)
    for _ in range(100):
        todo = (miss.abs() > rounding).any(-1).nonzero()[:, 0]
        if not len(todo):
            break
        now, now_miss, mu = x[todo], miss[todo], damping[todo]
        slope = q * now[:, None] ** (q - 1)  # ∂E_q/∂x_m, (b, M, M)
        bend = q * (q - 1) * now[:, None] ** (q - 2).clamp(min=0)  # ∂²E_q/∂x_m²; mixed derivatives are 0
        left, singular, right = torch.linalg.svd(slope)
        # The damped inverse is kept as factors: multiplied out, it would lose the small singular values.
        damped = (singular / (singular**2 + mu))[..., None]
        step = -right.mT @ (damped * (left.mT @ now_miss[..., None]))
        step = step - right.mT @ (damped * (left.mT @ (bend @ step**2))) / 2
        new = now + step[..., 0]
        new_miss = _miss(new, z[todo])
        better = new_miss.norm(dim=-1, keepdim=True) < now_miss.norm(dim=-1, keepdim=True)
        x[todo] = torch.where(better, new, now)
        miss[todo] = torch.where(better, new_miss, now_miss)
        damping[todo] = torch.where(better, mu / 2, mu * 3).clamp(1e-40, 1e3)
    return x


def _miss(x: Tensor, z: Tensor) -> Tensor:
    """By how much the power sums 1, …, M of x are too large: (B, M)."""
    return (powers(x, x.shape[-1]).sum(-2) - z)[:, 1:]


# How far the answer may miss the power sums, in parts of their scale. Of 200,000 sets of 4 to 10 elements with 2 to 5
# distinct or nearly distinct values, the worst missed by 3e-8.
TOLERANCE = 1e-6


def from_power_sums(z: Tensor) -> Tensor:
    r"""The set with these power sums, in ascending order: the inverse of `power_sums`, Lemma 6.

    >>> from_power_sums(power_sums(torch.tensor([0.9, 0.1, 0.5, 0.1])))
    tensor([0.1000, 0.1000, 0.5000, 0.9000], dtype=torch.float64)

    Shapes: (…, M + 1) → (…, M), float64, without gradient. Rounding z to float64 moves well separated elements little,
    and k equal elements by about $eps^{1/k}$; nothing can bring that back (docs/theory.md has a table).

    A ValueError names the first row that is not the power sums of M real numbers.
    """
    if z.ndim == 0 or z.shape[-1] == 0:
        raise ValueError(f"found a tensor of shape {tuple(z.shape)}, wanted power sums (…, M + 1) for q = 0, …, M.")
    if z.dtype != torch.float64:
        raise ValueError(f"found power sums in {z.dtype}, wanted torch.float64: fewer digits do not tell the elements.")
    refuse_infinite(z, "the power sums")
    size = z.shape[-1] - 1
    rows = z.detach().reshape(-1, size + 1)
    for row in ((rows[:, 0] - size).abs() > TOLERANCE).nonzero()[:1, 0].tolist():
        raise ValueError(
            f"row {row} has E_0 = {rows[row, 0].item():g}, which is the number of its elements, but {size + 1} columns "
            f"hold the power sums of sets of {size}. Invert sets of different sizes apart, each with M + 1 columns."
        )
    if size == 0:
        return rows.new_zeros(*z.shape[:-1], 0)

    # To numbers of size about 1. By the power means this scale is the largest element, or a little below it. It is a
    # power of two, so that scaling does not round, and neither infinite nor so small that its M-th power vanishes.
    q = torch.arange(size + 1, device=z.device)
    scale = (rows[:, 1:].abs() / size).pow(1 / q[1:]).amax(-1, keepdim=True).log2().round().exp2()
    scale = scale.clamp(2.0 ** -(1000 // size), 2.0**1000)
    scaled = rows / scale**q
    x = real_roots(scaled)
    miss = (powers(x, size).sum(-2) - scaled).abs().amax(-1) / size
    for row in (~(miss <= TOLERANCE)).nonzero()[:1, 0].tolist():
        nearest = x[row] * scale[row]
        raise ValueError(
            f"row {row} is not the power sums of {size} real numbers: found {_short(rows[row])}, but the nearest set "
            f"found, {_short(nearest)}, has {_short(power_sums(nearest))}. "
            f"The polynomial with the power sums found has complex roots."
        )
    return (x * scale).reshape(*z.shape[:-1], size)


def as_power_sums(
    f: Callable[[Tensor], Tensor], size: int
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    r"""Theorem 7: phi and rho with $f(x_1, …, x_M) = ρ(\sum_m φ(x_m))$, for any invariant f of sets of `size` numbers.

    >>> phi, rho = as_power_sums(lambda x: x.amax(-1) - x.amin(-1), size=3)
    >>> rho(phi(torch.tensor([0.2, 0.9, 0.4])).sum(-2))
    tensor(0.7000, dtype=torch.float64)

    phi does not depend on f: it is $[1, x, x^2, …, x^M]$, (…) → (…, M + 1). rho is $f ∘ E^{-1}$, (…, M + 1) → (…), for
    an f that maps (…, M) → (…). f gets float64 elements in ascending order: whatever f is, rho ∘ sum is invariant.
    """

    def phi(x: Tensor) -> Tensor:
        return powers(x, size)

    def rho(z: Tensor) -> Tensor:
        if z.shape[-1:] != (size + 1,):
            raise ValueError(f"found a tensor of shape {tuple(z.shape)}, wanted (…, {size + 1}), for sets of {size}.")
        return f(from_power_sums(z))

    return phi, rho


def _short(numbers: Tensor) -> str:
    return "[" + ", ".join(f"{number:.4g}" for number in numbers.tolist()) + "]"
