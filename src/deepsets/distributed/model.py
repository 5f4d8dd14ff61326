"""Models as the functions of Arrow tables use them: loaded once per process, predictions as columns."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..io import load
from ..io.predictions import answers, columns
from ..io.storage import local_folder
from ..io.table_sets import TableSets
from ..nn import DeepSet
from .shim import decode_estimator, encode_estimator, is_mergeable, state_estimator

Parts = dict[str, Tensor]


def load_model(model: Any) -> Any:
    """Return a model, or load the one at a path or URI, once per process."""
    return _load(str(model)) if isinstance(model, str | Path) else model


@functools.lru_cache(maxsize=8)
def _load(uri: str) -> Any:
    return load(local_folder(uri))


class SetModel:
    """Model of sets: a `DeepSet`, or an estimator.

    phi runs in the precision of the model; its outputs are pooled and merged in float64, so that neither the order of
    the rows nor the cut into parts is visible in a prediction.
    """

    def __init__(self, model: Any) -> None:
        self.model = load_model(model)
        self.plain = isinstance(self.model, DeepSet)
        if not self.plain and not hasattr(self.model, "predict"):
            name = type(self.model).__name__
            raise ValueError(f"a {name} does not predict for sets: wanted an estimator or a DeepSet.")
        if self.plain:
            self.model.eval()

    @property
    def mergeable(self) -> bool:
        """Whether the model has states, so that sets may be read in pieces."""
        return self.model.mergeable if self.plain else is_mergeable(self.model)

    @torch.no_grad()
    def encode(self, sets: TableSets) -> Parts:
        """Return the state of each set, tensors (B, ...) of float64."""
        if self.plain:
            state = self.model.encode(*self._tensors(sets), dtype=torch.float64)
        else:
            state = encode_estimator(self.model, sets.X, z=sets.z)
        return {name: part.double() for name, part in state.parts.items()}

    def state(self, parts: Parts) -> Any:
        """Return parts as a state, which can be merged and decoded."""
        return self.model.state(parts) if self.plain else state_estimator(self.model, parts)

    @torch.no_grad()
    def decode(self, parts: Parts, z: np.ndarray | None) -> dict[str, Any]:
        """Return the predictions from states, as columns."""
        if not self.plain:
            return columns(self.model, decode_estimator(self.model, self.state(parts), z=z))
        return self._columns(self.model.decode(self.state(parts), None if z is None else torch.from_numpy(z)))

    @torch.no_grad()
    def predict(self, sets: TableSets, by: str) -> dict[str, Any]:
        """Return the predictions for whole sets, as columns, without states."""
        if not self.plain:
            return answers(self.model, sets, by)
        return {by: sets.ids} | self._columns(self.model(*self._tensors(sets)))

    def _columns(self, values: Tensor) -> dict[str, Any]:
        return columns(self.model, (values[:, 0] if values.shape[1:] == (1,) else values).numpy())

    def _tensors(self, sets: TableSets) -> tuple[Any, Tensor | None]:
        if isinstance(sets.X, list):
            raise ValueError("the members are tokens: a DeepSet takes numbers. Use an estimator fitted on tokens.")
        dtype = next((p.dtype for p in self.model.parameters()), torch.float32)
        return sets.X.to(dtype=dtype), None if sets.z is None else torch.from_numpy(sets.z).to(dtype)
