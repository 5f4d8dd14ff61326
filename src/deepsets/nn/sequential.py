"""Set layers and plain modules one after another; models on padded arrays; the plain network of phi and rho."""

from __future__ import annotations

import inspect
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..sets import Sets

LARGE = 1 << 20  # multiplications from which oneDNN is faster: 29 against 43 µs for 512 rows of 64 x 64, one thread


class Factory(TypedDict, total=False):
    """Device and precision of the parameters of a new module."""

    device: torch.device | str | None
    dtype: torch.dtype | None


class SetLayer(nn.Module):
    """Base class of modules from sets to sets of the same sizes.

    Subclass it for layers of your own: `SetSequential` and `DeepSet` pass the whole batch to a `SetLayer`, and rows of
    elements to any other module.
    """

    def forward(self, sets: Sets) -> Sets:
        """Map sets with values (N, in) to sets with values (N, out)."""
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """Initialise all parameters again."""
        reset_children(self)


class SetSequential(SetLayer):
    """Set layers and plain modules one after another: a value for every member.

    Parameters
    ----------
    *layers : nn.Module
        A `SetLayer` sees the sets; any other module (activation, linear map) sees the members as rows,
        (N, in) -> (N, out).

    Shape
    -----
    Sets with values (N, in) -> Sets with values (N, out). For one output per set: ``DeepSet(SetSequential(...), rho)``.

    Examples
    --------
    >>> from deepsets import nn
    >>> net = nn.SetSequential(nn.Equivariant(3, 64), torch.nn.ReLU(), nn.Equivariant(64, 1))
    >>> net(Sets.from_list([torch.randn(5, 3), torch.randn(2, 3)])).values.shape
    torch.Size([7, 1])
    """

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, sets: Sets) -> Sets:
        """Map sets with values (N, in) to sets with values (N, out)."""
        for layer in self.layers:
            sets = layer(sets) if isinstance(layer, SetLayer) else sets.map(layer)
        return sets


class PaddedInput(nn.Module):
    """Wrap a model on sets as a module on padded arrays, for example as the embedding network of sbi.

    The padding is removed before the model runs, so the output does not depend on it.

    Parameters
    ----------
    model : nn.Module
        A `DeepSet`, `Pooling` or other model that returns one row per set; or a `SetLayer`, which returns one row per
        member.

    Shape
    -----
    x (B, M, D), mask (B, M) -> (B, out); for a `SetLayer`: (B, M, out), with 0 in the padding.

    Examples
    --------
    >>> from deepsets import nn
    >>> net = PaddedInput(nn.DeepSet(nn.mlp(2, 8, 8), nn.mlp(8, 1)))
    >>> x = torch.randn(3, 5, 2)
    >>> x[0, 2:] = torch.nan
    >>> net(x).shape
    torch.Size([3, 1])
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, mask: Tensor | None = None, z: Tensor | None = None) -> Tensor:
        """Apply the model to padded sets.

        Parameters
        ----------
        x : Tensor
            (B, M, D)
        mask : Tensor, optional
            (B, M), True where there is an element (the inverse of `key_padding_mask` of torch's attention). By default
            elements whose features are all NaN are padding, as in sbi.
        z : Tensor, optional
            (B, z), for a model that is conditioned on it.

        Returns
        -------
        Tensor
            (B, out) or (B, M, out)
        """
        mask = ~x.isnan().flatten(2).all(-1) if mask is None else mask
        sets = Sets.from_padded(x, mask)
        out = self.model(sets) if z is None else self.model(sets, z)
        if not isinstance(out, Sets):
            return out
        mask = mask.bool()
        padded = out.values.new_zeros(*mask.shape, *out.values.shape[1:])
        return padded.masked_scatter(mask.reshape(*mask.shape, *[1] * (padded.ndim - 2)), out.materialize().values)


@cache
def _onednn() -> Any:
    """Product of float32 matrices by oneDNN, if MKL, which torch uses, is slower: on AMD it leaves AVX-512 unused."""
    about = Path("/proc/cpuinfo")
    amd = about.exists() and "AuthenticAMD" in about.read_text()
    if not amd or not torch.backends.mkldnn.is_available() or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return None
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None)


class _Product(torch.autograd.Function):
    """``F.linear`` by oneDNN, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _onednn()(x, weight, bias, "none", [], "")

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad, wanted = grad.contiguous(), ctx.needs_input_grad
        product = F.linear if torch.is_grad_enabled() else lambda a, b: _onednn()(a, b, None, "none", [], "")
        of_weight = None
        if wanted[1]:  # with the shorter side first
            wide = weight.shape[1] >= weight.shape[0]
            of_weight = product(grad.T, x.T) if wide else product(x.T, grad.T).T.contiguous()
        return product(grad, weight.T) if wanted[0] else None, of_weight, grad.sum(0) if wanted[2] else None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute ``F.linear``; large products of float32 rows on the CPU by the faster one of MKL and oneDNN."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or x.ndim != 2 or x.shape[0] * weight.numel() < LARGE:
        return F.linear(x, weight, bias)
    plain = type(x) is Tensor and x.dtype == weight.dtype == torch.float32 and x.device.type == "cpu"
    special = torch.is_autocast_enabled("cpu") or torch._C._are_functorch_transforms_active()
    if not plain or special or not x.is_contiguous() or _onednn() is None:
        return F.linear(x, weight, bias)
    return _Product.apply(x, weight, bias)


class Linear(nn.Linear):
    """``torch.nn.Linear`` by :func:`linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (N, in_features) to (N, out_features)."""
        return linear(x, self.weight, self.bias)


def mlp(
    *widths: int, activation: type[nn.Module] = nn.ReLU, dropout: float = 0.0, **factory: Unpack[Factory]
) -> nn.Sequential:
    """Build a network of linear maps with an activation between them, none after the last.

    Parameters
    ----------
    *widths : int
        Features of the input, of each hidden layer, and of the output.
    activation : type, default=nn.ReLU
        Class of the activation.
    dropout : float, default=0.0
        Probability of dropout after each activation.

    Returns
    -------
    nn.Sequential

    Examples
    --------
    >>> mlp(3, 64, 10)
    Sequential(
      (0): Linear(in_features=3, out_features=64, bias=True)
      (1): ReLU(inplace=True)
      (2): Linear(in_features=64, out_features=10, bias=True)
    )
    """
    if len(widths) < 2:
        raise ValueError(f"a network needs the width of its input and of its output, found {list(widths)}.")
    # In place where the activation can: no other module holds the output of a linear map, and fresh memory is slow.
    options = {"inplace": True} if "inplace" in inspect.signature(activation).parameters else {}
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [Linear(before, after, **factory), activation(**options)]
        layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers[: -2 if dropout else -1])


def reset_children(module: nn.Module) -> None:
    """Initialise the parameters of all submodules again."""
    for child in module.children():
        reset = getattr(child, "reset_parameters", None)
        if callable(reset):
            reset()
        else:
            reset_children(child)
