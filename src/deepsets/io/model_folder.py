"""Writing and reading model folders."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from sklearn.exceptions import NotFittedError
from torch import Tensor

from .model_card import card
from .model_config import ModelFolderError, parse, registry, to_config, to_estimator

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"


def save(estimator: Any, path: str | Path, overwrite: bool = False) -> Path:
    """Writes a fitted estimator or expander to a new folder: `config.json`, `model.safetensors`, a card `README.md`.

    >>> import numpy as np, tempfile
    >>> from deepsets.estimators import SetRegressor
    >>> X = [np.full((n, 2), n / 9) for n in range(1, 9)]
    >>> model = SetRegressor(epochs=1, random_state=0).fit(X, [len(x) for x in X])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = save(model, f"{folder}/sizes")
    ...     print(*sorted(file.name for file in path.iterdir()))
    ...     bool((load(path).predict(X) == model.predict(X)).all())
    README.md config.json model.safetensors
    True

    The folder appears when it is complete. A path that exists is refused; with `overwrite` a model folder (nothing
    else) is replaced: the old one is moved aside, and removed when the new one stands in its place. `checkpoint_dir`,
    `verbose` and `history_` of the estimator are not kept.
    """
    name = type(estimator).__name__
    kind: Any = registry().get(name)
    if kind is not type(estimator):
        raise ModelFolderError(f"a model folder holds one of {', '.join(registry())}; found a {name}.")
    expander = hasattr(kind, "expand")
    if not hasattr(estimator, "vocabulary_" if expander else "network_"):
        raise NotFittedError(f"this {name} is not fitted yet: there is nothing to save.")
    path = Path(path)
    check_free(path, overwrite)
    if expander:
        try:
            tensors, _ = estimator.get_state()
        except ValueError as error:
            raise ModelFolderError(str(error)) from None
    else:
        tensors = {n: t.detach().cpu().contiguous().clone() for n, t in estimator.network_.state_dict().items()}
    weights = safetensors.torch.save(tensors)
    config = to_config(
        estimator, hashlib.sha256(weights).hexdigest(), {name.split(".")[0] for name in tensors} if expander else ()
    )
    history = getattr(estimator, "history_", None)
    text = card(config, path.name or "model", history[-1]["loss"] if history else None)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.new."))
    try:
        _write(new / WEIGHTS, weights)
        _write(new / CONFIG, json.dumps(config, indent=1, ensure_ascii=False).encode())
        _write(new / CARD, text.encode())
        new.chmod(0o755)  # a temporary folder is closed to others
        _put(new, path)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return path


def load(path: str | Path) -> Any:
    """The estimator of a model folder; its predictions are those of the estimator that was saved, bit for bit.

    The folder is data: nothing in it is run. What is damaged, foreign or newer than this library is a
    `ModelFolderError` that says so.
    """
    path = Path(path)
    if not path.is_dir():
        found = "is a file" if path.exists() else "does not exist"
        raise ModelFolderError(f"{path} {found}: wanted a model folder, with {CONFIG} and {WEIGHTS}.")
    for name in (CONFIG, WEIGHTS):
        if not (path / name).is_file():
            raise ModelFolderError(f"{path} is not a model folder: it has no {name}.")
    try:
        config = parse((path / CONFIG).read_bytes())
        estimator = to_estimator(config)
        weights = (path / WEIGHTS).read_bytes()
        if hashlib.sha256(weights).hexdigest() != config["weights"].get("sha256"):
            raise ModelFolderError(
                f"its {WEIGHTS} ({len(weights)} bytes) is not the file that was saved: the checksum differs. "
                "It may be cut short, damaged or of another model."
            )
        tensors = _tensors(weights)
        if hasattr(estimator, "expand"):
            try:
                estimator.set_state(tensors, {n: v for n, v in vars(estimator).items() if n.endswith("_")})
            except ValueError as error:
                raise ModelFolderError(f"{error}") from None
        else:
            estimator.network_ = _network(estimator, tensors)
    except ModelFolderError as error:
        raise ModelFolderError(f"{path} cannot be loaded: {error}") from None
    return estimator


def check_free(path: Path, overwrite: bool) -> None:
    """Refuses a path that exists; with `overwrite`, one that is anything but a model folder or an empty folder."""
    if not (path.exists() or path.is_symlink()):
        return
    if not overwrite:
        raise ModelFolderError(f"{path} exists: choose another path, or overwrite it (overwrite=True, --overwrite).")
    if path.is_symlink() or not path.is_dir():
        raise ModelFolderError(f"{path} is not a folder: it is left as it is.")
    others = sorted({entry.name for entry in path.iterdir()} - {CONFIG, WEIGHTS, CARD})
    if others:
        raise ModelFolderError(f"{path} holds {others[0]!r}, no part of a model folder: it is left as it is.")


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _put(new: Path, path: Path) -> None:
    """Renames a folder to a path, in the place of the one that is there. At every moment both are on disk, whole."""
    if not path.exists():
        new.rename(path)
        return
    old = new.with_name(new.name.replace(".new.", ".old."))
    path.rename(old)
    try:
        new.rename(path)
    except OSError:
        old.rename(path)
        raise
    shutil.rmtree(old)


def _tensors(weights: bytes) -> dict[str, Tensor]:
    try:
        # Copies: memory of torch's own is aligned, and the sums of a matrix product may depend on that.
        return {name: tensor.clone() for name, tensor in safetensors.torch.load(weights).items()}
    except (SafetensorError, ValueError, KeyError) as error:
        raise ModelFolderError(f"its {WEIGHTS} is not a safetensors file: {error}.") from None


def _network(estimator: Any, tensors: dict[str, Tensor]) -> torch.nn.Module:
    """The network of the settings, without memory of its own, filled with the tensors of the file."""
    try:
        with torch.device("meta"):
            network = estimator._new_network()
    except (TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as error:
        raise ModelFolderError(f"its config.json describes no network that can be built: {error}.") from None
    wanted = network.state_dict()
    for name in sorted(set(wanted) ^ set(tensors)):
        where = f"lacks the tensor {name!r}" if name in wanted else f"has a tensor {name!r} that is not wanted"
        raise ModelFolderError(f"its {WEIGHTS} does not fit its {CONFIG}: it {where}.")
    for name, tensor in tensors.items():
        if (tensor.shape, tensor.dtype) != (wanted[name].shape, wanted[name].dtype):
            raise ModelFolderError(
                f"its {WEIGHTS} does not fit its {CONFIG}: {name!r} has shape {tuple(tensor.shape)} of {tensor.dtype}, "
                f"wanted {tuple(wanted[name].shape)} of {wanted[name].dtype}."
            )
    network.load_state_dict(tensors, assign=True)
    return network.eval()
