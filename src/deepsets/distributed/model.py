"""Models as the functions of Arrow tables use them: loaded once per process, predictions as columns."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..io import load
from ..io.predictions import output_columns, prediction_columns
from ..io.storage import local_folder
from ..io.table_sets import TableSets
from ..nn import DeepSet

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

    @functools.cached_property
    def decoder(self) -> Any:
        """The model in float64, as its states: poolings with layers of their own would lose digits in float32."""
        return copy.deepcopy(self.model).double()

    @property
    def mergeable(self) -> bool:
        """Whether the model has states, so that sets may be read in pieces."""
        return self.model.mergeable if self.plain else getattr(self.model, "mergeable_", False)

    @torch.no_grad()
    def encode(self, sets: TableSets) -> Parts:
        """Return the state of each set, tensors (B, ...) of float64."""
        if self.plain:
            state = self.model.encode(*self._tensors(sets), dtype=torch.float64)
        elif hasattr(self.model, "encode"):
            state = self.model.encode(sets.X, z=sets.z)
        else:
            raise ValueError(f"a {type(self.model).__name__} looks at all members of a set at once: it has no states.")
        return {name: part.double() for name, part in state.parts.items()}

    def state(self, parts: Parts) -> Any:
        """Return parts as a state, which can be merged and decoded."""
        return self.model.state(parts)

    @torch.no_grad()
    def decode(self, parts: Parts, z: np.ndarray | None) -> dict[str, Any]:
        """Return the predictions from states, as columns."""
        if not self.plain:
            return output_columns(self.model, self.model.decode(self.state(parts)))
        found = self.decoder.decode(self.decoder.state(parts), None if z is None else torch.from_numpy(z))
        return self._columns(found.to(next((p.dtype for p in self.model.parameters()), torch.float32)))

    @torch.no_grad()
    def predict(self, sets: TableSets, by: str) -> dict[str, Any]:
        """Return the predictions for whole sets, as columns, without states."""
        if not self.plain:
            return prediction_columns(self.model, sets, by)
        return {by: sets.ids} | self._columns(self.model(*self._tensors(sets)))

    def _columns(self, values: Tensor) -> dict[str, Any]:
        return output_columns(self.model, (values[:, 0] if values.shape[1:] == (1,) else values).numpy())

    def _tensors(self, sets: TableSets) -> tuple[Any, Tensor | None]:
        return sets.X, None if sets.z is None else torch.from_numpy(sets.z).to(sets.X.dtype)
