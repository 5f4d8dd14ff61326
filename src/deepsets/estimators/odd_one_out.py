"""Which member of a set does not belong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..nn import segment_max, segment_sum
from ..sets import Sets
from ..train import Batch
from .layout import Members
from .member_estimator import MemberEstimator
from .parameters import MEMBER_PARAMETERS, documented
from .targets import one_per_set, target_column


@documented(MEMBER_PARAMETERS)
class OddOneOut(MemberEstimator):
    """The member of each set that does not belong: softmax over the members.

    y: (sets,) the position of the odd member in its set, counted from 0. Every set needs at least one member.

    {parameters}

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(5, 2)) for _ in range(40)]
    >>> y = [i % 5 for i in range(40)]
    >>> OddOneOut(epochs=2, random_state=0).fit(X, y).predict(X[:2]).shape
    (2,)
    """

    def predict_proba(self, X: Any, *, z: Any = None) -> list[np.ndarray]:
        """Predict one array (members,) per set: probabilities of being the odd one, which sum to 1."""
        members, set_level = self._read(X, z)
        layout = members.layout(torch.zeros(members.total, 1))
        logs = torch.stack([log_softmax(a[:, 0], layout) for a in self._answers(members, set_level).double()])
        return np.split(logs.exp().mean(0).numpy(), members.offsets[1:-1])

    def predict(self, X: Any, *, z: Any = None) -> np.ndarray:
        """Predict the position of the odd member, (sets,); −1 for an empty set."""
        return np.array([int(part.argmax()) if len(part) else -1 for part in self.predict_proba(X, z=z)])

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, z: Any = None) -> float:
        """Share of sets whose odd member is found."""
        members, _ = self._read(X, z, y)
        wanted = one_per_set(target_column(X, y), members, "position of the odd member")
        return float(np.average(self.predict(X, z=z) == wanted, weights=sample_weight))

    def _targets(self, y: Any, members: Members, *, first: bool) -> Sets:
        places = one_per_set(y, members, "position of the odd member")
        if places.dtype.kind not in "iu":
            raise ValueError(f"y must hold the position of the odd member of each set, integers; found {places.dtype}.")
        sizes = members.sizes
        if ((places < 0) | (places >= sizes)).any():
            b = int(((places < 0) | (places >= sizes)).argmax())
            raise ValueError(f"set {b} has {sizes[b]} members, but its odd one would be at position {places[b]}.")
        marks = torch.zeros(members.total, 1)
        marks[torch.from_numpy(members.offsets[:-1] + places.astype(np.int64))] = 1
        return replace(members, weights=None).layout(marks)

    def _loss(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor | float]:
        assert isinstance(batch.y, Sets)
        wanted = batch.y.values[:, 0] == 1
        logs = torch.stack([log_softmax(a[:, 0], batch.sets) for a in model(batch.sets, batch.z)])
        errors = -logs[:, wanted].mean(0)
        if batch.weight is None:
            return errors.sum(), float(len(errors))
        return (errors * batch.weight).sum(), batch.weight.sum()


def log_softmax(scores: Tensor, sets: Sets) -> Tensor:
    """Log of the softmax over the members of each set, (N,) to (N,)."""
    shifted = scores - sets.broadcast(segment_max(scores.detach()[:, None], sets))[:, 0]
    return shifted - sets.broadcast(segment_sum(shifted.exp()[:, None], sets))[:, 0].log()
