"""Checkpoints: one safetensors file, written to a temporary name and renamed. Never pickle."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

_FORMAT = "deepsets-checkpoint-1"


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or belongs to another training."""


def save(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Writes tensors and JSON-able facts so that after a crash either the old file or the new one is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")  # one name: what a killed process left is overwritten
    try:
        copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        save_file(copies, temporary, metadata={"format": _FORMAT, "facts": json.dumps(facts)})
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a checkpoint."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != _FORMAT:
                raise CheckpointError(
                    f"{path} is not a checkpoint of this library: found format {metadata.get('format')!r}, "
                    f"wanted {_FORMAT!r}."
                )
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(metadata["facts"])
    except (SafetensorError, OSError, KeyError, json.JSONDecodeError) as error:
        raise CheckpointError(
            f"{path} cannot be read as a checkpoint, it may be cut short or damaged: {error}"
        ) from None


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state of an optimizer as named tensors and plain numbers."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for number, entries in optimizer.state_dict()["state"].items():
        for name, value in entries.items():
            key = f"{number}.{name}"
            if isinstance(value, Tensor):
                tensors[key] = value
            else:
                numbers[key] = value
    return tensors, numbers


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """The reverse of `optimizer_tensors`."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in [*tensors.items(), *numbers.items()]:
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = value
    full = optimizer.state_dict()
    full["state"] = state
    optimizer.load_state_dict(full)
