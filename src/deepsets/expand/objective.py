"""Training objective of `SetExpander`: part of a set is the query, other members rank before negatives."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..sets import Sets
from ..train import Batch, seeded
from .network import ScoreNetwork


class TrainingPairs(NamedTuple):
    """Queries with members to be found and negatives.

    Attributes
    ----------
    queries : Sets
        Sets of ids.
    positives, owner : Tensor of shape (P,)
        Ids of members that are not in the query, and the set each belongs to.
    negatives : Tensor of shape (N,)
        Ids, the same for all sets.
    clash : Tensor of bool, shape (B, N)
        Where a negative is a member of the set.

    """

    queries: Sets
    positives: Tensor
    owner: Tensor
    negatives: Tensor
    clash: Tensor


def draw_pairs(sets: Sets, vocabulary: int, query: tuple[int, int], positives: int, negatives: int) -> TrainingPairs:
    """Draw from each set a random query and up to `positives` of its other members.

    Parameters
    ----------
    sets : Sets
        Sets of ids. Those that leave no member to be found are skipped.
    vocabulary : int
        Number of elements.
    query : tuple of int
        Smallest and largest size of a query.
    positives, negatives : int
        How many to draw, per set and for all sets.

    Returns
    -------
    TrainingPairs
        No member is both in the query and a positive.

    """
    sets = sets[sets.sizes >= least_size(query)]
    sizes, owner = sets.sizes, sets.set_ids
    order = (owner + torch.rand(sets.total, dtype=torch.float64)).argsort()  # members of each set, shuffled
    members = sets.values[order]
    low, high = query
    taken = (low + (torch.rand(len(sets)) * (high - low + 1)).long()).minimum(sizes - 1)
    place = torch.arange(sets.total) - sets.offsets[:-1][owner]
    in_query = place < taken[owner]
    wanted = ~in_query & (place < (taken + positives)[owner])
    others = torch.randint(vocabulary, (negatives,)) if negatives < vocabulary else torch.arange(vocabulary)
    code = torch.arange(len(sets))[:, None] * vocabulary + others
    clash = torch.isin(code, owner * vocabulary + members)
    offsets = torch.cat([taken.new_zeros(1), taken.cumsum(0)])
    return TrainingPairs(Sets(members[in_query], offsets), members[wanted], owner[wanted], others, clash)


def least_size(query: tuple[int, int]) -> int:
    """Return the size of the smallest set that has a member to be found beside a query."""
    return 1 if query[0] == 0 else 2


class ExpansionObjective:
    """Loss of a batch for `deepsets.train.train`.

    Parameters
    ----------
    rows : Tensor of shape (V, D), or None
        Features of the elements.
    vocabulary : int
        Number of elements.
    loss : {"margin", "softmax"}
        The loss, see `SetExpander`.
    margin : float
        Margin of the margin loss.
    query : tuple of int
        Smallest and largest size of a query.
    positives, negatives : int
        See `draw_pairs`.

    """

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
        """Return the sum of losses in training, else of log ranks, and their number."""
        assert isinstance(model, ScoreNetwork)
        if model.training:
            pairs = draw_pairs(batch.sets, self.vocabulary, self.query, self.positives, self.negatives)
            positive, negative = self.scores(model, pairs, batch)
            losses = self._losses(positive, negative[pairs.owner], pairs.clash[pairs.owner])
        else:
            with seeded(0):  # the same pairs after every epoch
                pairs = draw_pairs(batch.sets, self.vocabulary, self.query, self.positives, 4 * self.negatives)
            positive, negative = self.scores(model, pairs, batch)
            losses = self._log_ranks(positive, negative[pairs.owner], pairs.clash[pairs.owner])
        return losses.sum(), float(len(losses))

    def scores(self, model: ScoreNetwork, pairs: TrainingPairs, batch: Batch) -> tuple[Tensor, Tensor]:
        """Score the positives, (P,), and all negatives for every set, (B, N)."""
        ids = torch.cat([pairs.queries.values, pairs.positives, pairs.negatives])
        phi = model.encode_elements(ids, None if self.rows is None else self.rows[ids])
        query, positive, negative = phi.split([pairs.queries.total, len(pairs.positives), len(pairs.negatives)])
        z = None if batch.z is None else batch.z[batch.sets.sizes >= least_size(self.query)]
        queries = model.encode_queries(pairs.queries.with_values(query), z)
        every = queries.select((slice(None), None))
        return model.score(queries.select(pairs.owner), model.keys(positive)), model.score(
            every, model.keys(negative)[None]
        )

    def _losses(self, positive: Tensor, negative: Tensor, clash: Tensor) -> Tensor:
        if self.loss == "margin":
            return F.relu(negative - positive[:, None] + self.margin).masked_fill(clash, 0).mean(1)
        negative = negative.masked_fill(clash, -torch.inf)
        return torch.logaddexp(positive, negative.logsumexp(1)) - positive

    def _log_ranks(self, positive: Tensor, negative: Tensor, clash: Tensor) -> Tensor:
        """Estimate the logarithm of the rank of a positive in the whole vocabulary."""
        above = ((negative >= positive[:, None]) & ~clash).double().mean(1)
        return (1 + above * self.vocabulary).log()
