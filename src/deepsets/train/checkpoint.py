"""Checkpoint files: safetensors with a checksum over the whole file, and the previous one kept. Never pickle."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from ..files import atomic_path

_FORMAT = "deepsets-checkpoint-2"
NAME, _PREVIOUS = "checkpoint.safetensors", "checkpoint.previous.safetensors"
_NO_CHECKSUM = "0" * 64  # stands in the file while its checksum is computed

Content = tuple[dict[str, Tensor], dict[str, Any]]


class CheckpointError(ValueError):
    """A checkpoint cannot be read, or belongs to another training."""


class _DamagedError(CheckpointError):
    """A checkpoint whose bytes are not those that were written."""


def save(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any], *, keep_previous: bool = True) -> None:
    """Write tensors and JSON-able facts; the file that is replaced becomes the previous checkpoint, if that is kept."""
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    metadata = {"format": _FORMAT, "checksum": _NO_CHECKSUM, "facts": json.dumps(facts)}
    content = safetensors.torch.save(copies, metadata)
    content = content.replace(_NO_CHECKSUM.encode(), hashlib.sha256(content).hexdigest().encode(), 1)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
        if keep_previous and path.exists():
            _link(path, path.with_name(_PREVIOUS))


def _link(path: Path, name: Path) -> None:
    """Give a file a second name, as a copy where the file system has no links."""
    with atomic_path(name) as temporary:
        temporary.unlink(missing_ok=True)
        try:
            os.link(path, temporary)
        except OSError:
            shutil.copyfile(path, temporary)


def load(path: Path) -> Content:
    """Read a checkpoint, and verify its checksum."""
    try:
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
        if metadata.get("format") != _FORMAT:
            raise CheckpointError(
                f"{path} is not a checkpoint of this version: found format {metadata.get('format')!r}, expected "
                f"{_FORMAT!r}. Choose another folder, or delete it to start again."
            )
        checksum = metadata["checksum"]
        if hashlib.sha256(content.replace(checksum.encode(), _NO_CHECKSUM.encode(), 1)).hexdigest() != checksum:
            raise _DamagedError(f"{path} is damaged: its content does not match its checksum.")
        return safetensors.torch.load(content), json.loads(metadata["facts"])
    except (SafetensorError, OSError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise _DamagedError(f"{path} cannot be read as a checkpoint, it may be cut short or damaged: {error}") from None


def load_latest(folder: Path) -> tuple[Content | None, bool]:
    """Read the newest checkpoint of a folder that is not damaged, and whether that is the last one written."""
    path, previous = folder / NAME, folder / _PREVIOUS
    if not path.exists():
        return None, True
    try:
        return load(path), True
    except _DamagedError as error:
        if not previous.exists():
            raise
        try:
            content = load(previous)
        except CheckpointError as second:
            raise CheckpointError(f"{error} The previous checkpoint cannot be used either: {second}") from None
        warnings.warn(f"{error} Training goes on from the previous checkpoint, {previous}.", stacklevel=2)
        return content, False


def checkpoint_seed(folder: str | Path) -> int | None:
    """The seed of the training whose checkpoint is in a folder.

    A training without a seed of its own needs it to be resumed: batches, splits and dropout follow from it.

    Parameters
    ----------
    folder : str or Path
        The `checkpoint_dir` of the training.

    Returns
    -------
    int or None
        None if the folder has no checkpoint.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the training that resumes warns of a damaged checkpoint
        content, _ = load_latest(Path(folder))
    return None if content is None else int(content[1]["identity"]["seed"])


def load_weights(network: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Fill a network that was built on the meta device; ValueError where names, shapes or types differ."""
    wanted = network.state_dict()
    for name in sorted(set(wanted) ^ set(tensors)):
        where = f"lack the tensor {name!r}" if name in wanted else f"have a tensor {name!r} that is not expected"
        raise ValueError(f"the weights {where}.")
    for name, tensor in tensors.items():
        if (tensor.shape, tensor.dtype) != (wanted[name].shape, wanted[name].dtype):
            raise ValueError(
                f"the weights {name!r} have shape {tuple(tensor.shape)} of {tensor.dtype}, "
                f"wanted {tuple(wanted[name].shape)} of {wanted[name].dtype}."
            )
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise ValueError(f"the weights {name!r} are not finite.")
    network.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, assign=True)
    network.requires_grad_(True).eval()


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> Content:
    """The state of an optimizer as named tensors and plain numbers."""
    state = optimizer.state_dict()["state"]
    entries = {f"{number}.{name}": value for number, entry in state.items() for name, value in entry.items()}
    tensors = {key: value for key, value in entries.items() if isinstance(value, Tensor)}
    return tensors, {key: value for key, value in entries.items() if key not in tensors}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """Restore what `optimizer_tensors` returned."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**tensors, **numbers}.items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
