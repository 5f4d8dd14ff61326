"""Checks of symmetry, shipped so that users can test their own models."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .sets import Sets


def assert_invariant(
    model: Callable[[Sets], Tensor], sets: Sets, *, trials: int = 5, tolerance: float | None = None, seed: int = 0
) -> None:
    """Fails unless a model's answer for a set is the same for any order of its members and in any batch.

    >>> from deepsets import nn
    >>> assert_invariant(nn.DeepSet(nn.mlp(2, 8, 8), nn.mlp(8, 1)), Sets.from_list([torch.randn(5, 2)]))
    >>> assert_invariant(lambda sets: torch.stack([x[0] for x in sets]), Sets.from_list([torch.arange(4.0)[:, None]]))
    Traceback (most recent call last):
    ...
    AssertionError: the answer for set 0 (4 members) changes by 2 when its members are permuted; ...

    Three things are tried, `trials` times: the members of every set are permuted, the sets are permuted, and each
    set stands alone. `tolerance`: what may differ, relative to the largest answer (default: 1e-4 in float32, 1e-9 in
    float64). A model with dropout or batch norm must be in eval mode.
    """
    _check(lambda s: model(s), sets, trials, tolerance, seed, per_member=False)


def assert_equivariant(
    model: Callable[[Sets], Sets], sets: Sets, *, trials: int = 5, tolerance: float | None = None, seed: int = 0
) -> None:
    """Fails unless the answers for the members move along when the members do, in any batch.

    >>> from deepsets import nn
    >>> assert_equivariant(nn.Equivariant(2, 3), Sets.from_list([torch.randn(5, 2), torch.randn(1, 2)]))

    See `assert_invariant` for what is tried and the arguments.
    """
    _check(lambda s: model(s).materialize().values, sets, trials, tolerance, seed, per_member=True)


@torch.no_grad()
def _check(
    answer: Callable[[Sets], Tensor], sets: Sets, trials: int, tolerance: float | None, seed: int, *, per_member: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    sets = sets.materialize()
    wanted = answer(sets)
    count = sets.total if per_member else len(sets)
    if wanted.shape[:1] != (count,):
        what = "member" if per_member else "set"
        raise AssertionError(f"wanted one answer for each of the {count} {what}s, found shape {tuple(wanted.shape)}.")
    if tolerance is None:
        tolerance = 1e-9 if wanted.dtype == torch.float64 else 1e-4
    finite = wanted[wanted.isfinite()]
    limit = tolerance * max(1.0, float(finite.abs().max()) if finite.numel() else 0.0)
    for _ in range(trials):
        members = _permute_members(sets, generator)
        moved = answer(_at(sets, members))
        _compare(wanted[members] if per_member else wanted, moved, sets, limit, "its members are permuted", per_member)

        order = torch.randperm(len(sets), generator=generator)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(sets))
        batch = sets[order]
        found = answer(batch)
        found = batch.with_values(found)[back].values if per_member else found[back]
        _compare(wanted, found, sets, limit, "the sets of the batch are permuted", per_member)
    alone = [answer(sets[[b]]) for b in range(len(sets))]
    if alone:
        _compare(wanted, torch.cat(alone), sets, limit, "it stands alone in its batch", per_member)


def _permute_members(sets: Sets, generator: torch.Generator) -> Tensor:
    keys = torch.rand(sets.total, generator=generator, dtype=torch.float64)
    return (sets.set_ids.cpu() + keys).argsort().to(sets.device)


def _at(sets: Sets, places: Tensor) -> Sets:
    weights = None if sets.weights is None else sets.weights[places]
    return Sets(sets.values[places], sets.offsets, None, weights)


def _compare(wanted: Tensor, found: Tensor, sets: Sets, limit: float, when: str, per_member: bool) -> None:
    if found.shape != wanted.shape:
        raise AssertionError(
            f"the answer has shape {tuple(found.shape)} when {when}, but {tuple(wanted.shape)} before."
        )
    if not wanted.numel():
        return
    error = torch.where(found == wanted, 0, (found - wanted).abs()).nan_to_num(nan=torch.inf)
    error = error.reshape(len(error), -1).amax(1)
    if float(error.max()) <= limit:
        return
    row = int(error.argmax())
    b = int(sets.set_ids[row]) if per_member else row
    member = f", member {row - int(sets.offsets[b])}" if per_member else ""
    raise AssertionError(
        f"the answer for set {b} ({int(sets.sizes[b])} members){member} changes by {float(error[row]):g} "
        f"when {when}; {limit:g} would be allowed."
    )
