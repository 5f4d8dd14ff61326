"""Models as the Arrow functions use them: loaded once per process, encoded, merged and decoded in float64."""

from __future__ import annotations

import copy
import functools
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..io import load
from ..io.predictions import answers, columns
from ..io.table_sets import TableSets
from ..nn import DeepSet, State
from .storage import local_folder

Parts = dict[str, Tensor]


def load_model(model: Any) -> Any:
    """Return a model, or load the one in a model folder, once per process.

    Parameters
    ----------
    model : str, Path, estimator, expander or DeepSet
        A model, or the path or URI of a model folder.
    """
    return _load(str(model)) if isinstance(model, str | Path) else model


@functools.lru_cache(maxsize=8)
def _load(uri: str) -> Any:
    return load(local_folder(uri))


class SetModel:
    """A model of sets with states: an estimator, or a `DeepSet`.

    phi runs in the precision of the model; its output is pooled and merged in float64, so that neither the order of
    the rows nor the cut into parts is visible in a prediction.

    Parameters
    ----------
    model : estimator or DeepSet
        A fitted model.
    """

    def __init__(self, model: Any) -> None:
        if not isinstance(model, DeepSet) and not hasattr(model, "predict"):
            raise ValueError(f"a {type(model).__name__} does not predict for sets: wanted an estimator or a DeepSet.")
        self.model = model
        self.net = _exact(model) if isinstance(model, DeepSet) else None
        self.whole_sets_only = self.net is None and bool(getattr(model, "_PER_MEMBER", False))

    def encode(self, sets: TableSets) -> Parts:
        """Return the state of each set, tensors (B, ...) of float64."""
        with torch.no_grad():
            if self.net is None:
                state = _encode(self.model, sets.X, sets.z)
            else:
                state = self.net.encode(*self._tensors(sets))
        return {name: part.double() for name, part in state.parts.items()}

    def mergeable(self, sets: TableSets) -> bool:
        """Return whether the model has states that merge, tried on some sets."""
        try:
            self.encode(sets)
        except ValueError:
            return False
        return True

    def state(self, parts: Parts) -> State:
        """Return parts as a state, which can be merged and decoded."""
        return _state(self.model, parts) if self.net is None else State(self.net.pool, parts)

    def decode(self, parts: Parts, z: np.ndarray | None) -> dict[str, Any]:
        """Return the predictions from states, as columns."""
        if self.net is None:
            return columns(self.model, _decode(self.model, self.state(parts), z))
        with torch.no_grad():
            values = self.net.decode(self.state(parts), None if z is None else torch.from_numpy(z)).numpy()
        return columns(self.model, values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values)

    def predict(self, sets: TableSets, by: str) -> dict[str, Any]:
        """Return the predictions for whole sets, as columns, without states."""
        if self.net is None:
            return answers(self.model, sets, by)
        with torch.no_grad():
            values = self.model(*self._tensors(sets)).numpy()
        return {by: sets.ids} | columns(self.model, values[:, 0] if values.shape[1:] == (1,) else values)

    def _tensors(self, sets: TableSets) -> tuple[Any, Tensor | None]:
        if isinstance(sets.X, list):
            raise ValueError("the members are tokens: a DeepSet takes numbers. Use an estimator fitted on tokens.")
        dtype = next((p.dtype for p in self.model.parameters()), torch.float32)
        return sets.X.to(dtype=dtype), None if sets.z is None else torch.from_numpy(sets.z).to(dtype)


@functools.lru_cache(maxsize=8)
def _wrapped(uri: str) -> SetModel:
    return SetModel(_load(uri))


def set_model(model: Any) -> SetModel:
    """Return a model of sets for encoding and decoding, loaded once per process.

    Parameters
    ----------
    model : str, Path, estimator or DeepSet
        A model, or the path or URI of a model folder.
    """
    return _wrapped(str(model)) if isinstance(model, str | Path) else SetModel(model)


# ------------------------------------------------------------- until estimators and nn have encode, state and decode


class _Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.double()


def _exact(model: DeepSet) -> DeepSet:
    new = copy.deepcopy(model).eval().requires_grad_(False)
    last = new._late_map()
    if last is None:
        new.phi = nn.Sequential(new.phi, _Double()) if not hasattr(new.phi, "pool_") else new.phi
    else:
        new.phi = nn.Sequential(new.phi[:-1], _Double(), last.double())
    new.pool.double()
    new.rho.double()
    return new


class _Joined:
    def __init__(self, nets: list[DeepSet], parts: Parts) -> None:
        self.nets, self.parts = nets, parts

    def split(self) -> list[State]:
        out: list[Parts] = [{} for _ in self.nets]
        for name, part in self.parts.items():
            number, inner = name.split(".", 1)
            out[int(number)][inner] = part
        return [State(net.pool, each) for net, each in zip(self.nets, out, strict=True)]

    def _join(self, states: list[State]) -> Any:
        return _Joined(self.nets, {f"{i}.{n}": p for i, s in enumerate(states) for n, p in s.parts.items()})

    def __add__(self, other: Any) -> Any:
        return self._join([a + b for a, b in zip(self.split(), other.split(), strict=True)])

    def __sub__(self, other: Any) -> Any:
        return self._join([a - b for a, b in zip(self.split(), other.split(), strict=True)])


def _nets(model: Any) -> list[DeepSet]:
    if not hasattr(model, "_exact_nets"):
        nets = list(model.network_.networks)
        if not all(isinstance(net, DeepSet) for net in nets):
            raise ValueError(
                f"a {type(model).__name__} looks at all members of a set at once: it has no states that merge. Sets "
                "must be whole, the rows of each in one file, as neighbours."
            )
        model._exact_nets = [_exact(net) for net in nets]
    return model._exact_nets


def _encode(model: Any, X: Any, z: Any) -> Any:
    nets = _nets(model)
    _, sets, z = model._ask(X, z)
    sets, z = model.network_.prepare(sets, z)
    sets = sets if model.network_.embed is None else sets.map(model.network_.embed)
    states = [net.encode(sets, z) for net in nets]
    return _Joined(nets, {f"{i}.{n}": p for i, s in enumerate(states) for n, p in s.parts.items()})


def _state(model: Any, parts: Parts) -> Any:
    return _Joined(_nets(model), parts)


def _decode(model: Any, state: Any, z: Any) -> np.ndarray:
    context = None if z is None else model.network_.scale_z(torch.from_numpy(z).float())
    with torch.no_grad():
        found = torch.stack([n.decode(s, context) for n, s in zip(state.nets, state.split(), strict=True)])
        values = model._final(found).numpy()
    return values if hasattr(model, "classes_") else (values[:, 0] if model._flat_ else values)


def model_identity(model: Any) -> str:
    """Return a hash that differs for other weights or settings."""
    module = model if isinstance(model, nn.Module) else model.network_
    sees = [(part.append_size, part.condition) for part in module.modules() if isinstance(part, DeepSet)]
    digest = hashlib.sha256(f"{type(model).__name__} {module} {sees}".encode())
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]
