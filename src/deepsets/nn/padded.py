"""Models on sets for code that works with padded arrays."""

from __future__ import annotations

from torch import Tensor, nn

from ..sets import Sets


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
    >>> import torch
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
