"""Checks of symmetry, shipped so that users can test their own models."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .sets import Sets


def assert_invariant(
    model: Callable[[Sets], Tensor], sets: Sets, *, trials: int = 5, tolerance: float | None = None, seed: int = 0
) -> None:
    """Fail unless the output for a set is the same for any order of its members and in any batch.

    In each trial the members of every set are permuted, then the sets of the batch; at the end each set is tried alone.

    Parameters
    ----------
    model : callable
        Maps Sets to one row per set, (B, ...). With dropout or batch norm it must be in eval mode.
    sets : Sets
        A few small sets, with an empty one and one of a single member among them if the model allows it.
    trials : int, default=5
        Number of random orders.
    tolerance : float, optional
        Largest difference allowed, relative to the largest output or 1 (default: 1e-4 in float32, 1e-9 in float64).
    seed : int, default=0
        Of the random orders.

    Raises
    ------
    AssertionError
        Naming the set, the difference and what was permuted.

    Examples
    --------
    >>> from deepsets import nn
    >>> assert_invariant(nn.DeepSet(nn.mlp(2, 8, 8), nn.mlp(8, 1)), Sets.from_list([torch.randn(5, 2)]))
    >>> assert_invariant(lambda sets: torch.stack([x[0] for x in sets]), Sets.from_list([torch.arange(4.0)[:, None]]))
    Traceback (most recent call last):
    ...
    AssertionError: the output for set 0 (4 members) changes by 2 when its members are permuted; ...
    """
    _check(lambda s: model(s), sets, trials, tolerance, seed, per_member=False)


def assert_equivariant(
    model: Callable[[Sets], Sets], sets: Sets, *, trials: int = 5, tolerance: float | None = None, seed: int = 0
) -> None:
    """Fail unless the outputs for the members are permuted as the members are, in any batch.

    Parameters
    ----------
    model : callable
        Maps Sets to Sets of the same sizes.
    sets, trials, tolerance, seed
        As in :func:`assert_invariant`.

    Raises
    ------
    AssertionError
        Naming the set, the member, the difference and what was permuted.

    Examples
    --------
    >>> from deepsets import nn
    >>> assert_equivariant(nn.Equivariant(2, 3), Sets.from_list([torch.randn(5, 2), torch.randn(1, 2)]))
    """
    _check(lambda s: model(s).materialize().values, sets, trials, tolerance, seed, per_member=True)


@torch.no_grad()
def _check(
    run: Callable[[Sets], Tensor], sets: Sets, trials: int, tolerance: float | None, seed: int, *, per_member: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    sets = sets.materialize()
    expected = run(sets)
    count = sets.total if per_member else len(sets)
    if expected.shape[:1] != (count,):
        what = "member" if per_member else "set"
        raise AssertionError(
            f"expected one output for each of the {count} {what}s, found shape {tuple(expected.shape)}."
        )
    if tolerance is None:
        tolerance = 1e-9 if expected.dtype == torch.float64 else 1e-4
    finite = expected[expected.isfinite()]
    limit = tolerance * max(1.0, float(finite.abs().max()) if finite.numel() else 0.0)
    for _ in range(trials):
        places = _permute_members(sets, generator)
        found = run(sets.take_elements(places, sets.offsets))
        wanted = expected[places] if per_member else expected
        _compare(wanted, found, sets, limit, "its members are permuted", per_member)

        order = torch.randperm(len(sets), generator=generator)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(sets))
        batch = sets[order]
        found = run(batch)
        found = batch.with_values(found)[back].values if per_member else found[back]
        _compare(expected, found, sets, limit, "the sets of the batch are permuted", per_member)
    alone = [run(sets[[b]]) for b in range(len(sets))]
    if alone:
        _compare(expected, torch.cat(alone), sets, limit, "it is alone in its batch", per_member)


def _permute_members(sets: Sets, generator: torch.Generator) -> Tensor:
    keys = torch.rand(sets.total, generator=generator, dtype=torch.float64)
    return (sets.set_ids.cpu() + keys).argsort().to(sets.device)


def _compare(expected: Tensor, found: Tensor, sets: Sets, limit: float, when: str, per_member: bool) -> None:
    if found.shape != expected.shape:
        raise AssertionError(
            f"the output has shape {tuple(found.shape)} when {when}, but {tuple(expected.shape)} before."
        )
    if not expected.numel():
        return
    error = torch.where(found == expected, 0, (found - expected).abs()).nan_to_num(nan=torch.inf)
    error = error.reshape(len(error), -1).amax(1)
    if float(error.max()) <= limit:
        return
    row = int(error.argmax())
    b = int(sets.set_ids[row]) if per_member else row
    member = f", member {row - int(sets.offsets[b])}" if per_member else ""
    raise AssertionError(
        f"the output for set {b} ({int(sets.sizes[b])} members){member} changes by {float(error[row]):g} "
        f"when {when}; {limit:g} is allowed."
    )
