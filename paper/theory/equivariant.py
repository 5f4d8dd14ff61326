"""Matrices that commute with every permutation (Lemma 3, appendix B)."""

from typing import NamedTuple

import torch
from torch import Tensor


class Projection(NamedTuple):
    """λ and γ, each of shape (…), and the matrix λI + γ11ᵀ, of shape (…, M, M)."""

    lam: Tensor
    gamma: Tensor
    matrix: Tensor


def project_equivariant(theta: Tensor) -> Projection:
    r"""The matrix $λI + γ11^T$ nearest to each square matrix.

    >>> lam, gamma, matrix = project_equivariant(torch.tensor([[1.0, 2.0], [4.0, 3.0]]))
    >>> matrix
    tensor([[2., 3.],
            [3., 2.]])
    >>> lam, gamma
    (tensor(-1.), tensor(3.))

    Shapes: (…, M, M) → (…), (…), (…, M, M). This orthogonal projection is also the mean of $π^T Θ π$ over all M!
    permutations π: both leave λ + γ, the mean of the diagonal, and γ, the mean of the rest (0 for M = 1).
    """
    if theta.ndim < 2 or theta.shape[-1] != theta.shape[-2]:
        raise ValueError(f"found a tensor of shape {tuple(theta.shape)}, wanted square matrices (…, M, M).")
    if not theta.is_floating_point():
        raise ValueError(f"found a tensor of {theta.dtype}, wanted a floating-point tensor.")
    size = theta.shape[-1]
    eye = torch.eye(size, dtype=torch.bool, device=theta.device)
    # The rest is summed without the diagonal, not as all minus the diagonal: a large diagonal would drown it.
    gamma = theta.masked_fill(eye, 0).sum((-2, -1)) / max(size * (size - 1), 1)
    diagonal = theta.diagonal(dim1=-2, dim2=-1).sum(-1) / max(size, 1)
    matrix = torch.where(eye, diagonal[..., None, None], gamma[..., None, None])
    return Projection(diagonal - gamma, gamma, matrix)


def is_equivariant(theta: Tensor) -> Tensor:
    """Whether a matrix commutes with every permutation of its rows and columns: (…, M, M) → (…) of bool.

    >>> is_equivariant(torch.tensor([[[5.0, 2.0], [2.0, 5.0]], [[5.0, 2.0], [3.0, 5.0]]]))
    tensor([ True, False])

    By Lemma 3 it does if and only if it is its own projection, here up to eps^¾ of its norm, for rounding.
    """
    far = torch.linalg.matrix_norm(theta - project_equivariant(theta).matrix)
    return far <= torch.finfo(theta.dtype).eps ** 0.75 * torch.linalg.matrix_norm(theta)
