"""Which member of a set does not belong."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..nn import segment_max, segment_sum
from ..sets import Sets
from ..train import Batch
from .base import target_column
from .input import Read
from .members import PerMember
from .targets import one_per_set


class OddOneOut(PerMember):
    """Which member of a set does not belong: softmax over the members of each set.

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(5, 2)) for _ in range(40)]
    >>> y = [i % 5 for i in range(40)]
    >>> OddOneOut(epochs=2, random_state=0).fit(X, y).predict(X[:2]).shape
    (2,)

    y: (sets,) the place of the odd member in its set, counted from 0. Every set needs at least one member.
    """

    def predict_proba(self, X: Any, z: Any = None) -> list[np.ndarray]:
        """One array (members,) a set: the probability of being the odd one; they add up to 1."""
        _, sets, context = self._ask(X, z)
        logs = torch.stack([log_softmax(a[:, 0], sets) for a in self._answers(sets, context).double()])
        return np.split(logs.exp().mean(0).numpy(), sets.offsets[1:-1].tolist())

    def predict(self, X: Any, z: Any = None) -> np.ndarray:
        """(sets,) the place of the odd member."""
        return np.array([int(part.argmax()) if len(part) else -1 for part in self.predict_proba(X, z)])

    def score(self, X: Any, y: Any, z: Any = None, sample_weight: Any = None) -> float:
        """The share of sets whose odd member is found."""
        given, sets, _ = self._ask(X, z)
        wanted = one_per_set(target_column(X, y), given._replace(sets=sets), "place of the odd member")
        return float(np.average(self.predict(X, z) == wanted, weights=sample_weight))

    def _targets(self, y: Any, given: Read, *, first: bool) -> Sets:
        places = one_per_set(y, given, "place of the odd member")
        sets = given.sets
        assert sets is not None
        if places.dtype.kind not in "iu":
            raise ValueError(f"y must hold the place of the odd member of each set, integers; found {places.dtype}.")
        sizes = sets.sizes.numpy()
        if ((places < 0) | (places >= sizes)).any():
            b = int(((places < 0) | (places >= sizes)).argmax())
            raise ValueError(f"set {b} has {sizes[b]} members, but its odd one would be at place {places[b]}.")
        marks = torch.zeros(sets.total, 1)
        marks[sets.offsets[:-1] + torch.from_numpy(places.astype(np.int64))] = 1
        return sets.materialize().with_values(marks)

    def _outputs(self, y: Tensor | Sets) -> int:
        return 1

    def _loss(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor | float]:
        assert isinstance(batch.y, Sets)
        wanted = batch.y.values[:, 0] == 1
        logs = torch.stack([log_softmax(a[:, 0], batch.sets) for a in model.answers(batch.sets, batch.z)])
        errors = -logs[:, wanted].mean(0)
        if batch.weight is None:
            return errors.sum(), float(len(errors))
        return (errors * batch.weight).sum(), batch.weight.sum()


def log_softmax(scores: Tensor, sets: Sets) -> Tensor:
    """(N,) -> (N,): log of the softmax over the members of each set."""
    shifted = scores - sets.broadcast(segment_max(scores.detach()[:, None], sets))[:, 0]
    return shifted - sets.broadcast(segment_sum(shifted.exp()[:, None], sets))[:, 0].log()
