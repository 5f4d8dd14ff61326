"""Population statistics: samples of Gaussians, and the entropy or mutual information to be learned (section 4.1.1)."""

import math
from typing import Literal, get_args

import numpy as np
import torch
from scipy.special import digamma
from torch import Tensor

from deepsets.sets import Sets

Task = Literal["rotation", "correlation-d16", "rank1-d32", "random-d32"]
TASKS: tuple[Task, ...] = get_args(Task)
_RANGE = {"rotation": (0.0, math.pi), "correlation-d16": (-1.0, 1.0), "rank1-d32": (0.0, 1.0)}


def population(task: Task, count: int, seed: int = 0, *, task_seed: int = 1) -> tuple[Sets, Tensor]:
    """`count` sets of 300 to 500 members, each drawn from a Gaussian, and what is asked of that Gaussian, (count,).

    >>> sets, y = population("correlation-d16", 100)
    >>> sets.width, bool(300 <= sets.sizes.min() <= sets.sizes.max() <= 500), y.shape
    (32, True, torch.Size([100]))

    ``rotation``: N(0, R(α) Σ R(α)ᵀ) in the plane, α in [0, π]; the entropy ½ log(2πe σ²) of the first coordinate.
    ``correlation-d16``: N(0, [[Σ, αΣ], [αΣ, Σ]]), Σ 16 x 16, α in (−1, 1); the mutual information of the two halves.
    ``rank1-d32``: N(0, I + λ v vᵀ), λ in (0, 1); the mutual information of the 32 coordinates.
    ``random-d32``: N(0, Σ) with another Σ for each set; the mutual information of the 32 coordinates.

    The mutual information of all coordinates (total correlation) is ½ (Σᵢ log Σᵢᵢ − log det Σ). Where the paper is
    silent its authors' generator decides: v is uniform in the cube, scaled to length 1; with A uniform in the cube, the
    rotated Σ is AAᵀ and the larger ones are (AAᵀ + I) / ‖A‖². That generator takes the log of σ⁴ for σ² in the entropy;
    here it is the entropy itself. What a task keeps fixed (Σ, v) comes from `task_seed`; angles, sizes and members come
    from `seed`. The default is 1, since 0 happens to draw a Σ for the rotation that is singular but for 6e-7.
    """
    _check(task)
    rng = np.random.default_rng([1, seed])
    sizes = rng.integers(300, 501, count)
    if task == "random-d32":
        roots = np.linalg.cholesky(_covariance(32, (count,), rng))
    else:
        roots = _roots(task, rng.uniform(*_RANGE[task], count), task_seed)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    values = rng.standard_normal((offsets[-1], roots.shape[-1]), dtype=np.float32)
    for root, start, stop in zip(roots.astype(np.float32), offsets[:-1], offsets[1:], strict=True):
        values[start:stop] = values[start:stop] @ root.T
    y = statistic(task, roots @ roots.swapaxes(1, 2))
    return Sets(torch.from_numpy(values), torch.from_numpy(offsets)), torch.from_numpy(y).float()


def statistic(task: Task, covariance: np.ndarray) -> np.ndarray:
    """What a task asks of Gaussians with these covariances: (..., d, d) -> (...)."""
    variance = np.diagonal(covariance, axis1=-2, axis2=-1)
    if task == "rotation":
        return 0.5 * np.log(2 * math.pi * math.e * variance[..., 0])
    if task == "correlation-d16":
        parts = _log_det(covariance[..., :16, :16]) + _log_det(covariance[..., 16:, 16:])
    else:
        parts = np.log(variance).sum(-1)
    return 0.5 * (parts - _log_det(covariance))


def plug_in(task: Task, sets: Sets) -> Tensor:
    """The statistic of each set's sample covariance, without its bias: the best that knows no more than Gaussianity.

    The log determinant of a sample covariance of size d with n degrees of freedom is too small by
    Σᵢ log(n/2) − ψ((n − i)/2), i < d, on average (Wishart).
    """
    _check(task)
    found = statistic(task, np.stack([np.atleast_2d(np.cov(x.double().numpy().T)) for x in sets]))
    n = sets.sizes.numpy() - 1
    log_det = [digamma((n - i) / 2) - np.log(n / 2) for i in range(sets.width)]
    one, half, whole = log_det[0], sum(log_det[:16]), sum(log_det)
    parts = {"rotation": one, "correlation-d16": 2 * half - whole}.get(task, 32 * one - whole)
    return torch.from_numpy(found - 0.5 * parts).float()


def posterior_mean(task: Task, sets: Sets, *, task_seed: int = 1) -> Tensor:
    """The best answers there are, in squared error: from the Σ or v of the task and the law of its one parameter.

    Not for ``random-d32``, where 528 numbers are free.
    """
    _check(task)
    if task == "random-d32":
        raise ValueError(
            "the posterior of random-d32 has 528 unknowns: only tasks with one parameter have this answer."
        )
    if task == "correlation-d16":  # dense towards −1 and 1, where the information is infinite
        nodes = np.tanh(np.linspace(-7, 7, 2001))
        weight = 1 - nodes**2
    else:
        nodes, weight = np.linspace(*_RANGE[task], 2001), np.ones(2001)
    roots = _roots(task, nodes, task_seed)
    covariance = roots @ roots.swapaxes(1, 2)
    second = np.stack([(x.T @ x / len(x)).numpy() for x in (x.double() for x in sets)]).reshape(len(sets), -1)
    fit = second @ np.linalg.inv(covariance).reshape(len(nodes), -1).T + _log_det(covariance)  # (sets, nodes)
    chance = np.exp(-0.5 * sets.sizes.numpy()[:, None] * (fit - fit.min(1, keepdims=True))) * weight
    return torch.from_numpy(chance @ statistic(task, covariance) / chance.sum(1)).float()


def _roots(task: Task, parameter: np.ndarray, task_seed: int) -> np.ndarray:
    """(n,) -> (n, d, d): matrices A whose AAᵀ are the covariances."""
    fixed = np.random.default_rng([0, TASKS.index(task), task_seed])
    p = parameter[:, None, None]
    if task == "rotation":
        turn = np.block([[np.cos(p), -np.sin(p)], [np.sin(p), np.cos(p)]])
        return turn @ fixed.random((2, 2))
    if task == "correlation-d16":
        root, zero = np.linalg.cholesky(_covariance(16, (), fixed)), np.zeros((len(p), 16, 16))
        return np.block([[zero + root, zero], [p * root, np.sqrt(1 - p**2) * root]])
    v = fixed.random(32)
    v /= np.linalg.norm(v)
    return np.eye(32) + (np.sqrt(1 + p) - 1) * np.outer(v, v)


def _covariance(d: int, count: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    mix = rng.random((*count, d, d))
    return (mix @ mix.swapaxes(-1, -2) + np.eye(d)) / np.square(mix).sum((-1, -2), keepdims=True)


def _log_det(matrix: np.ndarray) -> np.ndarray:
    return np.linalg.slogdet(matrix)[1]


def _check(task: str) -> None:
    if task not in TASKS:
        raise ValueError(f"there is no task {task!r}; there are: {', '.join(TASKS)}.")
