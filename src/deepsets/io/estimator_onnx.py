"""A fitted estimator as ONNX: from members in their own units to the final answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..estimators.members import MemberClassifier
from ..estimators.odd_one_out import OddOneOut, log_softmax
from ..estimators.sets import SetClassifier
from ..sets import Sets
from .export import export_onnx


def to_onnx(estimator: Any, path: str | Path) -> Path:
    """Writes what `predict_proba` (classifiers, `OddOneOut`) or `predict` (regressors) compute.

    Inputs: values (N, features) as floats, NaN allowed with `impute`, or ids (N,) of the vocabulary; offsets (B + 1,);
    z (B, k) if fitted with it. Output `answer`: (B, out) for estimators of sets, (N, out) for those of members.
    """
    sizes = [3, 2, 4]  # an example; all sizes stay open
    vocabulary = getattr(estimator, "vocabulary_", None)
    width = estimator.n_features_in_
    values = torch.zeros(sum(sizes), dtype=torch.long) if vocabulary else torch.zeros(sum(sizes), width)
    sets = Sets(values, torch.tensor([0, *sizes]).cumsum(0))
    z = torch.zeros(len(sizes), estimator.n_context_) if estimator.n_context_ else None
    return export_onnx(_Final(estimator).eval(), sets, path, z)


class _Final(nn.Module):
    """The networks and what makes one answer of theirs."""

    def __init__(self, estimator: Any) -> None:
        super().__init__()
        self.network = estimator.network_
        self.classes = isinstance(estimator, SetClassifier | MemberClassifier)
        self.odd = isinstance(estimator, OddOneOut)

    def forward(self, sets: Sets, z: Tensor | None = None) -> Tensor:
        answers = self.network(sets, z)  # (networks, B or N, out)
        if self.classes:
            return answers.softmax(-1).mean(0)
        if self.odd:
            return torch.stack([log_softmax(each[:, 0], sets) for each in answers]).exp().mean(0)[:, None]
        return self.network.unscale(answers.mean(0))
