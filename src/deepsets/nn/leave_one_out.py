"""Outputs for every set without each of its members, through the pooled state."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..sets import Sets, to_offsets
from .deepset import DeepSet
from .kernels import segment_max, segment_sum
from .pooling import ConcatPooling, Pooling
from .reductions import StdPooling, _Extreme, _LinearPooling
from .sequential import SetLayer


def leave_one_out(model: DeepSet, sets: Sets, z: Tensor | None = None) -> Tensor:
    """Compute, for every member, the output of the model for its set without that member.

    phi runs once for each member; then sum, mean, std and unweighted max and min cost one more pass over the members,
    other poolings look at all pairs of members of a set.

    Parameters
    ----------
    model : DeepSet
        Whose phi sees one member at a time.
    sets : Sets
        With values (N, in).
    z : Tensor, optional
        (B, z), if the model is conditioned on it.

    Returns
    -------
    Tensor
        (N, out)

    Examples
    --------
    >>> from deepsets import nn
    >>> model = nn.DeepSet(nn.mlp(2, 8), nn.mlp(8, 1), pool="mean")
    >>> sets = Sets.from_list([torch.randn(5, 2), torch.randn(3, 2)])
    >>> torch.allclose(leave_one_out(model, sets)[0], model(Sets.from_list([sets[0][1:]]))[0], atol=1e-6)
    True
    """
    if isinstance(model.phi, SetLayer):
        raise ValueError("leaving members out needs a phi that sees one member at a time; this phi is a set layer.")
    model._check(sets, z)
    members = model._members(sets, z).materialize()
    counts = members.broadcast(members.counts) - (1 if members.weights is None else members.weights)
    rest = _rest(model.pool, members)
    return model._apply_rho(rest, counts if model.append_size else None, None if z is None else members.broadcast(z))


def _rest(pool: Pooling, sets: Sets) -> Tensor:
    """(N, pooled): the pooled vector of each set without each of its members."""
    if isinstance(pool, ConcatPooling):
        return torch.cat([_rest(p, sets) for p in pool.poolings], dim=-1)  # type: ignore[arg-type]
    if isinstance(pool, _LinearPooling | StdPooling):
        whole = {name: sets.broadcast(part) for name, part in pool.state(sets).items()}
        alone = Sets.unchecked(sets.values, torch.arange(sets.total + 1, device=sets.device), None, sets.weights)
        return pool.finish(pool.remove(whole, pool.state(alone)))
    if isinstance(pool, _Extreme) and sets.weights is None:
        return _runner_up(sets, pool.sign)
    return torch.cat([pool(part) for part in _other_members(sets)]) if sets.total else pool(sets[:0])


def _runner_up(sets: Sets, sign: int) -> Tensor:
    """The extreme value of the others: the best, or for a member that is the only best, the second best."""
    values = sign * sets.values
    best = sets.broadcast(segment_max(values, sets))
    wins = values == best
    only = wins & (sets.broadcast(segment_sum(wins.to(values.dtype), sets)) == 1)
    second = sets.broadcast(segment_max(values.masked_fill(only, -torch.inf), sets))
    rest = torch.where(only, second, best)
    return sign * torch.where(sets.broadcast(sets.sizes)[:, None] > 1, rest, 0)


def _other_members(sets: Sets, most: int = 1 << 20) -> Iterator[Sets]:
    """For every member the set of the other members of its set, in batches of about `most` pairs."""
    places: list[Tensor] = []
    counts: list[int] = []
    pairs = 0
    for n, start in zip(sets.sizes.tolist(), sets.offsets.tolist(), strict=False):
        places.append(torch.arange(start, start + n).expand(n, n)[~torch.eye(n, dtype=torch.bool)])
        counts += [n - 1] * n
        pairs += n * (n - 1)
        if pairs > most:
            yield _by_places(sets, places, counts)
            places, counts, pairs = [], [], 0
    if counts:
        yield _by_places(sets, places, counts)


def _by_places(sets: Sets, places: list[Tensor], counts: list[int]) -> Sets:
    ids = torch.cat(places).to(sets.device)
    offsets = to_offsets(torch.tensor(counts, device=sets.device))
    return Sets.unchecked(sets.values, offsets, ids, None if sets.weights is None else sets.weights[ids])
