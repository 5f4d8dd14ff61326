"""The answer for every set without each of its members, through the pooled state."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..sets import Sets
from .deepset import DeepSet
from .pooling import ConcatPooling, Pooling
from .reductions import StdPooling, _Extreme, _LinearPooling
from .kernels import segment_max, segment_sum
from .sequential import SetLayer


def leave_one_out(model: DeepSet, sets: Sets, z: Tensor | None = None) -> Tensor:
    """(N, out): for every member, the model's answer for its set without it.

    >>> from deepsets import nn
    >>> model = nn.DeepSet(nn.mlp(2, 8), nn.mlp(8, 1), pool="mean")
    >>> sets = Sets.from_list([torch.randn(5, 2), torch.randn(3, 2)])
    >>> torch.allclose(leave_one_out(model, sets)[0], model(Sets.from_list([sets[0][1:]]))[0], atol=1e-6)
    True

    phi runs once for each member; then sums, means, deviations and extremes cost one more pass over the members.
    Other poolings look at all pairs of members of a set. phi must see one member at a time.
    """
    if isinstance(model.phi, SetLayer):
        raise ValueError("leaving members out needs a phi that sees one member at a time; this phi is a set layer.")
    model._check(sets, z)
    members = model._members(sets, z).materialize()
    counts = members.broadcast(members.counts) - (1 if members.weights is None else members.weights)
    rest = _rest(model.pool, members)
    return model._answer(rest, counts if model.append_size else None, None if z is None else members.broadcast(z))


def _rest(pool: Pooling, sets: Sets) -> Tensor:
    """(N, pooled): the pooled vector of each set without each of its members."""
    if isinstance(pool, ConcatPooling):
        return torch.cat([_rest(p, sets) for p in pool.poolings], dim=-1)  # type: ignore[arg-type]
    if isinstance(pool, _LinearPooling | StdPooling):
        whole = {name: sets.broadcast(part) for name, part in pool.state(sets).items()}
        alone = Sets._trusted(sets.values, torch.arange(sets.total + 1, device=sets.device), None, sets.weights)
        return pool.finish(pool.remove(whole, pool.state(alone)))
    if isinstance(pool, _Extreme) and sets.weights is None:
        return _runner_up(sets, pool.sign)
    return torch.cat([pool(part) for part in _pairs(sets)]) if sets.total else pool(sets[:0])


def _runner_up(sets: Sets, sign: int) -> Tensor:
    """The extreme value of the others: the best, or for a member that is the only best, the second best."""
    values = sign * sets.values
    best = sets.broadcast(segment_max(values, sets))
    wins = values == best
    only = wins & (sets.broadcast(segment_sum(wins.to(values.dtype), sets)) == 1)
    second = sets.broadcast(segment_max(values.masked_fill(only, -torch.inf), sets))
    rest = torch.where(only, second, best)
    return sign * torch.where(sets.broadcast(sets.sizes)[:, None] > 1, rest, 0)


def _pairs(sets: Sets, most: int = 1 << 20) -> Iterator[Sets]:
    """For every member the set of its set mates, by index; in batches of about `most` pairs."""
    sizes, starts = sets.sizes.tolist(), sets.offsets.tolist()
    rows: list[Tensor] = []
    counts: list[int] = []
    for n, start in zip(sizes, starts, strict=False):
        mates = torch.arange(start, start + n).expand(n, n)[~torch.eye(n, dtype=torch.bool)]
        rows.append(mates)
        counts += [n - 1] * n
        if sum(map(len, rows)) > most:
            yield _by_index(sets, rows, counts)
            rows, counts = [], []
    if counts:
        yield _by_index(sets, rows, counts)


def _by_index(sets: Sets, rows: list[Tensor], counts: list[int]) -> Sets:
    index = torch.cat(rows).to(sets.device)
    offsets = torch.tensor([0, *counts], device=sets.device).cumsum(0)
    return Sets._trusted(sets.values, offsets, index, None if sets.weights is None else sets.weights[index])
