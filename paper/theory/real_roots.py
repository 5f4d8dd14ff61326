"""The real numbers with given power sums, to the last digits that the power sums hold.

Two steps. `_interlaced` finds the roots of the polynomial by Newton-Girard and Rolle's theorem, and so cannot leave the
real line. `_polished` then solves E(x) = z by a damped Newton method, because what we promise is a set that has these
power sums.

The textbook way, eigenvalues of the companion matrix, gives complex pairs wherever elements repeat; from their real
parts the second step ends further from z, at worst 1000 times (measured on sets of 10 with 2 or 3 distinct values).
"""

import math

import torch
from torch import Tensor

from .power_sums import powers


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

    Let Q_k be the (M - k)-th derivative of the polynomial ∏(y - y_m), made monic. Then Q_k' = k Q_{k-1}, and the k-th
    power sum enters Q_k only as its constant. If Q_M has M real roots, so has each Q_k, one in each gap between the
    roots of Q_{k-1} (Rolle). So climb from Q_1 to Q_M, and in each gap bisect.

    Where roots repeat, rounding may lift a minimum of Q_k above 0, and two real roots would turn complex. The constant
    is therefore moved to the nearest value for which every maximum is ≥ 0 and every minimum ≤ 0.
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
    """Solves E(x) = z from the starts x: (B, M), (B, M + 1) → (B, M).

    Levenberg-Marquardt, since the Jacobian is singular wherever elements repeat; with its second-order ("geodesic")
    correction, which follows the curved valleys there: 30 steps with it come as near as 300 without. Rows that have
    arrived drop out, most of them after a few of the 100 steps.
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
