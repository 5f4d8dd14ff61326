"""A model taken apart: rows of a table to states, states merged, states to answers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..io import TableSets
from ..io import model_identity, output_columns
from ..nn import DeepSet, State
from ..sets import Sets

Parts = dict[str, Tensor]


def load_model(model: Any) -> Any:
    """A model as it is, or the one in a model folder."""
    if not isinstance(model, str | Path):
        return model
    from ..io import load

    return load(model)


def load_answerer(model: Any) -> Any:
    """The same, of a model that answers for sets."""
    given = load_model(model)
    if not isinstance(given, DeepSet) and not hasattr(given, "predict"):
        raise ValueError(f"a {type(given).__name__} does not answer for sets: wanted an estimator or a DeepSet.")
    return given


class Coder:
    r"""States of sets by a `SetRegressor`, a `SetClassifier` or a `DeepSet`.

    >>> from deepsets import nn
    >>> coder = Coder(nn.DeepSet(nn.mlp(2, 8, 4), nn.mlp(4, 1), pool="mean"), features=2)
    >>> {name: tuple(part.shape) for name, part in coder.empty.items()}
    {'0.sum': (1, 4), '0.count': (1,)}

    phi runs in the model's own precision; what it gives is pooled, merged and sent through rho in float64. So neither
    the order of the rows nor the cut between partitions shows in the answer: $\sum$ over $10^8$ members in float32
    would depend on both in the fourth digit. Parts are named `network.part`, an estimator may hold several networks.
    """

    def __init__(self, model: Any, features: int | None = None, context: int = 0) -> None:
        self.model = model
        self.estimator = not isinstance(model, DeepSet)
        nets = list(model.network_.networks) if self.estimator else [model]
        if not all(isinstance(net, DeepSet) for net in nets):
            raise ValueError(
                f"a {type(model).__name__} looks at all members of a set at once: it has no states that merge. Sets "
                "must be whole, the rows of each in one file, as neighbours."
            )
        self.dtype = torch.float32 if self.estimator else next((p.dtype for p in model.parameters()), torch.float32)
        wanted = bool(model.n_context_) if self.estimator else model.condition is not None
        if wanted != bool(context):
            raise ValueError(f"the model takes {'z' if wanted else 'no z'}; found {context} columns for z.")
        blank = _one_empty(model, model.n_features_in_ if self.estimator else features, self.dtype)
        z = torch.zeros(1, context, dtype=self.dtype) if context else None
        with torch.no_grad():
            nets[0].encode(*self._seen(blank, z))  # what has no state says so here, before any work
            self.nets = [_exact(net) for net in nets]
            self.empty = self._encode(*self._seen(blank, z))  # the state of one empty set

    @torch.no_grad()
    def encode(self, part: TableSets) -> Parts:
        """The states of sets, or of pieces of sets: tensors (B, ...) of float64."""
        if self.estimator:
            _, sets, z = self.model._ask(part.X, part.z)
        else:
            if isinstance(part.X, list):
                raise ValueError("the members are tokens: a DeepSet takes numbers. Use an estimator fitted on tokens.")
            sets, z = part.X.to(dtype=self.dtype), None if part.z is None else torch.from_numpy(part.z).to(self.dtype)
        return self._encode(*self._seen(sets, z))

    def _seen(self, sets: Sets, z: Tensor | None) -> tuple[Sets, Tensor | None]:
        """What the networks see: scaled or embedded."""
        if not self.estimator:
            return sets, z
        network = self.model.network_
        sets, z = network.prepare(sets, z)
        return (sets if network.embed is None else sets.map(network.embed)), z

    def _encode(self, sets: Sets, z: Tensor | None) -> Parts:
        states = [net.encode(sets, z) for net in self.nets]
        return {f"{i}.{name}": part.double() for i, state in enumerate(states) for name, part in state.parts.items()}

    @torch.no_grad()
    def decode(self, parts: Parts, z: np.ndarray | None) -> dict[str, Any]:
        """States to columns of answers."""
        context = None if z is None else torch.from_numpy(z)
        if self.estimator and context is not None:
            context = self.model.network_.scale_z(context.float())
        states = self._states(parts)
        found = torch.stack([net.decode(state, context) for net, state in zip(self.nets, states, strict=True)])
        if not self.estimator:
            values = found[0].numpy()
            return output_columns(self.model, values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values)
        values = self.model._final(found).numpy()
        if hasattr(self.model, "classes_"):
            return output_columns(self.model, values)
        return output_columns(self.model, (values[:, 0] if self.model._flat_ else values).astype(np.float32))

    def merge(self, a: Parts, b: Parts) -> Parts:
        """The states of the unions, set by set."""
        return self._join([x + y for x, y in zip(self._states(a), self._states(b), strict=True)])

    def remove(self, a: Parts, b: Parts) -> Parts:
        """The states without the members of b."""
        return self._join([x - y for x, y in zip(self._states(a), self._states(b), strict=True)])

    def _states(self, parts: Parts) -> list[State]:
        split: list[Parts] = [{} for _ in self.nets]
        for name, part in parts.items():
            number, inner = name.split(".", 1)
            split[int(number)][inner] = part
        return [State(net.pool, each) for net, each in zip(self.nets, split, strict=True)]

    @staticmethod
    def _join(states: list[State]) -> Parts:
        return {f"{i}.{name}": part for i, state in enumerate(states) for name, part in state.parts.items()}


class _Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.double()


def _exact(model: DeepSet) -> DeepSet:
    """The same model with pooling and rho in float64; a linear map that may run after the pooling runs there too."""
    new = copy.deepcopy(model).eval().requires_grad_(False)
    last = new._late_map()
    if last is None:
        new.phi = nn.Sequential(new.phi, _Double())
    else:
        assert isinstance(new.phi, nn.Sequential)
        new.phi = nn.Sequential(new.phi[:-1], _Double(), last.double())
    new.pool.double()
    new.rho.double()
    return new


def _one_empty(model: Any, width: int | None, dtype: torch.dtype) -> Sets:
    offsets = torch.tensor([0, 0])
    if getattr(model, "vocabulary_", None):
        return Sets(torch.zeros(0, dtype=torch.long), offsets)
    return Sets(torch.zeros(0, width or 1, dtype=dtype), offsets)
