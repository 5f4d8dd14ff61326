"""What an expander is trained on: parts of a set as query, other members to be found, strangers to be put behind."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..sets import Sets
from ..train import Batch, seeded
from .network import ScoreNetwork


class Task(NamedTuple):
    """queries: Sets of ids. positives: (P,) ids, `owner` (P,) their sets. negatives: (B, N) ids, for all sets the same
    ones; `clash` (B, N) is True where one stands in the set.
    """

    queries: Sets
    positives: Tensor
    owner: Tensor
    negatives: Tensor
    clash: Tensor


def draw(sets: Sets, vocabulary: int, query: tuple[int, int], positives: int, negatives: int) -> Task:
    """From each set a random query, of a size in the range `query`, and up to `positives` of its other members.

    A member is never in the query and a positive at once. Sets that leave nothing to find ask nothing.
    """
    sets = sets[sets.sizes >= least_size(query)]
    sizes, owner = sets.sizes, sets.set_ids
    order = (owner + torch.rand(sets.total, dtype=torch.float64)).argsort()  # members of each set, shuffled
    members = sets.values[order]
    low, high = query
    taken = (low + (torch.rand(len(sets)) * (high - low + 1)).long()).minimum(sizes - 1)
    place = torch.arange(sets.total) - sets.offsets[:-1][owner]
    asked = place < taken[owner]
    wanted = ~asked & (place < (taken + positives)[owner])
    others = torch.randint(vocabulary, (negatives,)) if negatives < vocabulary else torch.arange(vocabulary)
    code = torch.arange(len(sets))[:, None] * vocabulary + others
    clash = torch.isin(code, owner * vocabulary + members)
    offsets = torch.cat([taken.new_zeros(1), taken.cumsum(0)])
    return Task(Sets(members[asked], offsets), members[wanted], owner[wanted], others, clash)


def least_size(query: tuple[int, int]) -> int:
    """Of a set that can be learnt from: a member to be found beside the least query, or beside one member."""
    return 1 if query[0] == 0 else 2


class Objective:
    """The loss of a batch, as `deepsets.train` wants it."""

    def __init__(
        self,
        rows: Tensor | None,
        vocabulary: int,
        *,
        loss: str,
        margin: float,
        query: tuple[int, int],
        positives: int,
        negatives: int,
    ) -> None:
        self.rows, self.vocabulary, self.loss, self.margin, self.query = rows, vocabulary, loss, margin, query
        self.positives, self.negatives = positives, negatives

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, float]:
        """In training the loss; else the log rank, whose mean is what patience looks at."""
        assert isinstance(model, ScoreNetwork)
        if model.training:
            task = draw(batch.sets, self.vocabulary, self.query, self.positives, self.negatives)
            positive, negative = self.scores(model, task, batch)
            losses = self._losses(positive, negative[task.owner], task.clash[task.owner])
        else:
            with seeded(0):  # the same queries after every epoch
                task = draw(batch.sets, self.vocabulary, self.query, self.positives, 4 * self.negatives)
            positive, negative = self.scores(model, task, batch)
            losses = self._log_ranks(positive, negative[task.owner], task.clash[task.owner])
        return losses.sum(), float(len(losses))

    def scores(self, model: ScoreNetwork, task: Task, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of the positives, (P,), and of all negatives for every set, (B, N)."""
        ids = torch.cat([task.queries.values, task.positives, task.negatives])
        phi = model.elements(ids, None if self.rows is None else self.rows[ids])
        query, positive, negative = phi.split([task.queries.total, len(task.positives), len(task.negatives)])
        z = None if batch.z is None else batch.z[batch.sets.sizes >= least_size(self.query)]
        asked = model.ask(task.queries.with_values(query), z)
        every = asked.at((slice(None), None))
        return model.meet(asked.at(task.owner), model.keys(positive)), model.meet(every, model.keys(negative)[None])

    def _losses(self, positive: Tensor, negative: Tensor, clash: Tensor) -> Tensor:
        if self.loss == "margin":
            return F.relu(negative - positive[:, None] + self.margin).masked_fill(clash, 0).mean(1)
        negative = negative.masked_fill(clash, -torch.inf)
        return torch.logaddexp(positive, negative.logsumexp(1)) - positive

    def _log_ranks(self, positive: Tensor, negative: Tensor, clash: Tensor) -> Tensor:
        """The logarithm of the rank that a positive would have in the whole vocabulary."""
        above = ((negative >= positive[:, None]) & ~clash).double().mean(1)
        return (1 + above * self.vocabulary).log()
