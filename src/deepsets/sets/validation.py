"""Validation of sets, done once where data enters. Every message names what was found, where, and what is expected."""

from __future__ import annotations

import torch
from torch import Tensor


def check_parts(
    values: Tensor,
    offsets: Tensor,
    element_ids: Tensor | None,
    weights: Tensor | None,
    *,
    ensure_finite: bool = True,
) -> None:
    """Raise a ValueError where the four parts of a batch do not fit together."""
    for name, part in (("values", values), ("offsets", offsets), ("element_ids", element_ids), ("weights", weights)):
        if part is None and name in ("element_ids", "weights"):
            continue
        if not isinstance(part, Tensor):
            raise ValueError(
                f"{name} must be a torch.Tensor, found {type(part).__name__}. "
                "Sets.from_list takes arrays, nested lists and tensors."
            )
        if part.layout != torch.strided:
            raise ValueError(
                f"{name} must be a dense tensor, found layout {part.layout}: see Sets.from_csr and Sets.from_nested."
            )
        if part.device != values.device:
            raise ValueError(
                f"all parts of a batch must be on one device: values are on {values.device}, {name} on {part.device}."
            )
    if values.ndim == 0:
        raise ValueError("values must have the elements on their first axis, (N, ...); found a single number.")
    if 0 in values.shape[1:]:
        raise ValueError(
            f"elements need at least one feature, found values of shape {tuple(values.shape)}. "
            "Give a constant column if only the number of elements matters."
        )
    if values.device.type == "meta":  # shapes without numbers: nothing more can be checked, and nothing is read
        return
    if element_ids is not None:
        _check_element_ids(element_ids, len(values))
    total = len(values) if element_ids is None else len(element_ids)
    _check_offsets(offsets, total)
    if ensure_finite:
        check_finite(values, offsets if element_ids is None else None)
    if weights is not None:
        _check_weights(weights, offsets, total)


def place(row: int, offsets: Tensor) -> str:
    """Set and element of a row, in words."""
    b = int(torch.searchsorted(offsets, row, right=True)) - 1
    return f"set {b}, element {row - int(offsets[b])}"


def check_finite(values: Tensor, offsets: Tensor | None = None, name: str = "values") -> None:
    """Raise a ValueError that names the set and the element of the first NaN or infinity.

    Parameters
    ----------
    values : Tensor
        (N, ...)
    offsets : Tensor, optional
        (B + 1,) to name the set; without it the row is named.
    name : str, default="values"
        What the numbers are called in the message.
    """
    if not values.is_floating_point() or values.numel() == 0:
        return
    # A sum is finite only if all its terms are: one pass, and no temporary of the size of the values.
    if bool(torch.isfinite(values.detach().sum())) or bool(torch.isfinite(values).all()):
        return
    row = int((~torch.isfinite(values)).nonzero()[0, 0])
    where = f"element {row}" if offsets is None else place(row, offsets)
    shown = values[row].flatten()[:8].tolist()
    raise ValueError(
        f"{name} must be finite: {where} holds {shown}{'…' if values[row].numel() > 8 else ''}. "
        "Impute or drop missing values before making sets."
    )


def _check_offsets(offsets: Tensor, total: int) -> None:
    if offsets.ndim != 1 or offsets.shape[0] == 0 or offsets.is_floating_point() or offsets.dtype == torch.bool:
        raise ValueError(
            f"offsets must be a vector of B + 1 integers, found shape {tuple(offsets.shape)} of {offsets.dtype}."
        )
    offsets = offsets.long()
    if int(offsets[0]) != 0:
        raise ValueError(f"offsets must begin with 0, found {int(offsets[0])}.")
    falls = (offsets[1:] < offsets[:-1]).nonzero()  # compared, not subtracted: a difference may overflow
    if len(falls):
        begin, end = offsets[int(falls[0]) :][:2].tolist()
        raise ValueError(
            f"offsets must not decrease: set {int(falls[0])} would begin at {begin} and end at {end}, "
            f"a negative size of {end - begin}."
        )
    if int(offsets[-1]) != total:
        raise ValueError(f"offsets end at {int(offsets[-1])}, but there are {total} elements.")


def _check_element_ids(element_ids: Tensor, stored: int) -> None:
    if element_ids.ndim != 1 or element_ids.dtype not in (torch.int64, torch.int32):
        raise ValueError(
            f"element_ids must be a vector of integers, found shape {tuple(element_ids.shape)} of {element_ids.dtype}."
        )
    bad = ((element_ids < 0) | (element_ids >= stored)).nonzero()
    if len(bad):
        n = int(bad[0])
        raise ValueError(
            f"element_ids[{n}] is {int(element_ids[n])}, but there are {stored} distinct elements (0..{stored - 1})."
        )


def _check_weights(weights: Tensor, offsets: Tensor, total: int) -> None:
    if weights.shape != (total,) or not weights.is_floating_point():
        raise ValueError(
            f"weights must be one floating-point number for each of the {total} elements, shape ({total},); "
            f"found shape {tuple(weights.shape)} of {weights.dtype}."
        )
    check_finite(weights, offsets, "weights")
    negative = (weights < 0).nonzero()
    if len(negative):
        n = int(negative[0])
        raise ValueError(f"weights must not be negative: {place(n, offsets)} has weight {float(weights[n])}.")
