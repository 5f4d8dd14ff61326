"""Temporary: encode, state and decode of estimators, until these have them."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..nn import DeepSet, State

Parts = dict[str, Tensor]

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


def encode_estimator(model: Any, X: Any, *, z: Any) -> Any:
    nets = _nets(model)
    _, sets, z = model._ask(X, z)
    sets, z = model.network_.prepare(sets, z)
    sets = sets if model.network_.embed is None else sets.map(model.network_.embed)
    states = [net.encode(sets, z) for net in nets]
    return _Joined(nets, {f"{i}.{n}": p for i, s in enumerate(states) for n, p in s.parts.items()})


def state_estimator(model: Any, parts: Parts) -> Any:
    return _Joined(_nets(model), parts)


def decode_estimator(model: Any, state: Any, *, z: Any) -> np.ndarray:
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


def is_mergeable(model: Any) -> bool:
    """Return whether an estimator has states."""
    return not getattr(model, "_PER_MEMBER", False)
