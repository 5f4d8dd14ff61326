"""Model folders: weights as safetensors, settings and learned facts as JSON, checked before anything is built."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import importlib.metadata
import json
import math
import platform
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from ..files import atomic_folder, locked
from .model_card import card

FORMAT, VERSION = "deepsets-model", 1
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"

# Settings of one training on one machine, not of the model. They are never written, and never obeyed when read.
NOT_KEPT = ("checkpoint_dir", "verbose", "on_epoch")
# Settings that expanders had before, in folders that use the value which is fixed now.
_EARLIER = {"normalize": True, "exponent": 0.5, "shrinkage": 0.0, "width": 128, "dropout": 0.1, "batch_size": 16}
_EARLIER |= {"learning_rate": 3e-3, "weight_decay": 0.01}
_EXAMPLES = {"number": 0.0, "category": "x", "datetime": datetime.datetime(2000, 1, 1)}


class ModelFolderError(ValueError):
    """A model folder that cannot be written or read: damaged, of another program, or newer than this library."""


def save(model: Any, path: str | Path, overwrite: bool = False) -> Path:
    """Save a fitted estimator or expander to a folder.

    The folder holds ``config.json``, ``model.safetensors`` and a model card, ``README.md``. It appears when it is
    complete. `checkpoint_dir`, `verbose` and `history_` of the model are not kept.

    Parameters
    ----------
    model : estimator or Expander
        A fitted model.
    path : str or Path
        The folder.
    overwrite : bool, default=False
        Whether an existing model folder (and nothing else) is replaced. At every moment either the old or the new
        folder is there.

    Returns
    -------
    Path
        The folder.

    Examples
    --------
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
    """
    from sklearn.exceptions import NotFittedError

    name = type(model).__name__
    known: Any = _registry().get(name)
    if known is not type(model):
        raise ModelFolderError(f"a model folder holds one of {', '.join(_registry())}; found a {name}.")
    try:
        tensors, facts = model.get_state()
    except NotFittedError:
        raise NotFittedError(f"this {name} is not fitted yet: there is nothing to save.") from None
    except ValueError as error:
        raise ModelFolderError(str(error)) from None
    path = Path(path)
    check_free(path, overwrite)
    _check_weights(tensors)
    weights = safetensors.torch.save(tensors)
    config = _to_config(model, facts, hashlib.sha256(weights).hexdigest())
    text = card(model, config, path.name or "model")
    with locked(path), atomic_folder(path) as new:
        (new / WEIGHTS).write_bytes(weights)
        (new / CONFIG).write_text(json.dumps(config, indent=1, ensure_ascii=False), encoding="utf-8")
        (new / CARD).write_text(text, encoding="utf-8")
    return path


def load(path: str | Path) -> Any:
    """Load the model of a folder.

    Its predictions are those of the model that was saved, bit for bit. The folder is data: nothing in it is executed.

    Parameters
    ----------
    path : str or Path
        A folder written by :func:`save`.

    Returns
    -------
    estimator or Expander
        The fitted model.

    Raises
    ------
    ModelFolderError
        If the folder is damaged, of another program, or newer than this library.
    """
    path = Path(path)
    if not path.is_dir():
        found = "is a file" if path.exists() else "does not exist"
        raise ModelFolderError(f"{path} {found}: wanted a model folder, with {CONFIG} and {WEIGHTS}.")
    for name in (CONFIG, WEIGHTS):
        if not (path / name).is_file():
            raise ModelFolderError(f"{path} is not a model folder: it has no {name}.")
    try:
        config = _parse((path / CONFIG).read_bytes())
        weights = (path / WEIGHTS).read_bytes()
        if hashlib.sha256(weights).hexdigest() != config["weights"].get("sha256"):
            raise ModelFolderError(
                f"its {WEIGHTS} ({len(weights)} bytes) is not the file that was saved: the checksum differs. "
                "It may be truncated, damaged or of another model."
            )
        return _build(config, weights)
    except ModelFolderError as error:
        raise ModelFolderError(f"{path} cannot be loaded: {error}") from None


def check_free(path: Path, overwrite: bool) -> None:
    """Raise an error for a path that exists; with `overwrite`, unless it is a model folder or an empty folder."""
    if not (path.exists() or path.is_symlink()):
        return
    if not overwrite:
        raise ModelFolderError(f"{path} exists: choose another path, or overwrite it (overwrite=True, --overwrite).")
    if path.is_symlink() or not path.is_dir():
        raise ModelFolderError(f"{path} is not a folder: it was not changed.")
    others = sorted({entry.name for entry in path.iterdir()} - {CONFIG, WEIGHTS, CARD})
    if others:
        raise ModelFolderError(f"{path} holds {others[0]!r}, no part of a model folder: it was not changed.")


def model_identity(model: Any) -> str:
    """Return a hash that differs for other weights, settings or layers.

    Parameters
    ----------
    model : estimator, Expander or torch.nn.Module
        A fitted model.

    Returns
    -------
    str
        32 hexadecimal digits.
    """
    if isinstance(model, torch.nn.Module):
        plain = (str, int, float, bool, type(None))  # settings of a layer that its repr may not show
        options = [
            sorted(
                f"{n}={v}" for n, v in vars(part).items() if isinstance(v, plain) and n[0] != "_" and n != "training"
            )
            for part in model.modules()
        ]
        tensors, facts = dict(model.state_dict()), {"layers": repr(model), "options": str(options)}
    else:
        tensors, learned = model.get_state()
        config = _to_config(model, learned, "")
        facts = {name: config[name] for name in ("class", "params", "fitted")}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        flat = tensor.detach().cpu().clone(memory_format=torch.contiguous_format).reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def checksum(config: dict[str, Any]) -> str:
    """Return the SHA-256 of all entries of a config but the checksum itself, whatever their order and spacing."""
    rest = {name: value for name, value in config.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def to_plain(value: Any, name: str) -> Any:
    """Convert a value to what JSON can hold."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return [to_plain(v, name) for v in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: to_plain(v, name) for key, v in value.items()}
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ModelFolderError(f"{name} holds the text {value!a:.100}, which is not valid Unicode.") from None
    elif value is not None and not isinstance(value, int | float):
        raise ModelFolderError(
            f"{name} holds a {type(value).__name__}, {str(value)[:100]!r}: a model folder keeps strings, numbers and "
            "booleans."
        )
    return value


def _registry() -> dict[str, type]:
    """The classes that a model folder may hold, by name. Nothing else is ever created from a folder."""
    from .. import estimators, expand

    classes = [
        value
        for package in (estimators, expand)
        for value in vars(package).values()
        if isinstance(value, type) and hasattr(value, "get_params") and hasattr(value, "fit")
    ]
    return {kind.__name__: kind for kind in classes if kind is not expand.BaseExpander}


def _to_config(model: Any, facts: dict[str, Any], weights: str) -> dict[str, Any]:
    """The contents of config.json, with the SHA-256 of the weights file."""
    not_kept = {*NOT_KEPT, *getattr(model, "not_saved", ())}
    params = {name: value for name, value in model.get_params(deep=False).items() if name not in not_kept}
    if isinstance(params.get("random_state"), np.random.RandomState):
        params["random_state"] = None  # the position in a random stream is not a setting
    config = {
        "format": FORMAT,
        "format_version": VERSION,
        "class": type(model).__name__,
        "params": {name: to_plain(value, name) for name, value in params.items()},
        "fitted": {name: to_plain(value, name) for name, value in sorted(facts.items())},
        "weights": {"sha256": weights},
        "versions": {
            "deepsets": importlib.metadata.version("deepsets"),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }
    return config | {"sha256": checksum(config)}


def _parse(text: bytes) -> dict[str, Any]:
    """The config as a dict whose parts have the right types; nothing is created from it yet."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFolderError(f"its config.json is not valid JSON, it may be truncated or damaged: {error}.") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        found = config.get("format") if isinstance(config, dict) else type(config).__name__
        raise ModelFolderError(
            f'its config.json was not written by this library: wanted "format": "{FORMAT}", found {found!r:.100}.'
        )
    version = config.get("format_version")
    if type(version) is not int or version < 1:
        raise ModelFolderError(f"its config.json has no valid format_version: found {version!r:.100}.")
    if version > VERSION:
        made = config.get("versions")
        made = made.get("deepsets") if isinstance(made, dict) else None
        raise ModelFolderError(
            f"it has format version {version} (written by deepsets {made or 'of a newer version'!s:.40}), but this "
            f"deepsets reads up to {VERSION}: upgrade deepsets."
        )
    if config.get("sha256") != checksum(config):
        raise ModelFolderError("its config.json is not the one that was saved: the checksum differs.")
    for name, kind in {"class": str, "params": dict, "fitted": dict, "weights": dict}.items():
        if not isinstance(config.get(name), kind):
            raise ModelFolderError(f"its config.json lacks a valid {name!r}: found {type(config.get(name)).__name__}.")
    return config


def _build(config: dict[str, Any], weights: bytes) -> Any:
    """The model of a config and a weights file."""
    try:
        # Copies: memory of torch's own is aligned, and the sums of a matrix product may depend on that.
        tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(weights).items()}
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ModelFolderError(f"its {WEIGHTS} is not a safetensors file: {error}.") from None
    _check_weights(tensors)
    _check_sizes(config["params"], tensors)
    try:
        model = _unfitted(config)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about settings that nobody here chose
            model.set_state(tensors, config["fitted"])
            _try_out(model)
    except ModelFolderError:
        raise
    except ValueError as error:
        raise ModelFolderError(str(error)) from None
    except Exception as error:  # whatever a malformed config leads to, it is the folder that is wrong
        text = f"{type(error).__name__}: {error}"
        raise ModelFolderError(
            f"its contents do not describe a {config['class']}, it may be damaged ({text:.300})."
        ) from None
    return model


def _check_weights(tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.is_complex():
            raise ModelFolderError(f"its tensor {name!r} holds complex numbers.")
        if tensor.is_floating_point() and bool(tensor.isnan().any()):
            raise ModelFolderError(f"its tensor {name!r} holds NaN: the training diverged, or the file is damaged.")


def _check_sizes(params: dict[str, Any], tensors: dict[str, Any]) -> None:
    """Refuse sizes that the weights file cannot support, before anything is built from them."""
    most = sum(tensor.numel() for tensor in tensors.values()) + 1000
    for name in ("width", "depth", "n_estimators", "embedding", "phi", "rho"):
        value = params.get(name)
        sizes = value if isinstance(value, list) else [value]
        if len(sizes) > len(tensors) + 1 or sum(abs(size) for size in sizes if isinstance(size, int)) > most:
            raise ModelFolderError(
                f"its weights do not fit its config.json: {name}={value!r:.100} for a file of {len(tensors)} tensors "
                f"with {most - 1000:,} numbers."
            )


def _unfitted(config: dict[str, Any]) -> Any:
    """The model of a config, without what it has learned."""
    classes = _registry()
    if config["class"] not in classes:
        raise ModelFolderError(f"it holds a {config['class']!r:.100}; known are {', '.join(classes)}.")
    model: Any = classes[config["class"]]()
    defaults = model.get_params(deep=False)
    params = dict(config["params"])
    for name, value in sorted(params.items()):
        if name not in defaults and name in _EARLIER and value == _EARLIER[name]:
            del params[name]
            continue
        if name not in defaults or name in NOT_KEPT:
            raise ModelFolderError(f"its config.json sets {name!r:.100}, which is no setting of a model folder.")
        if isinstance(value, float) and not math.isfinite(value):
            raise ModelFolderError(f"its config.json sets {name!r} to {value}, which is not a finite number.")
        if isinstance(value, list) and isinstance(defaults[name], tuple):
            params[name] = tuple(value)
    return model.set_params(**params)


def _try_out(model: Any) -> None:
    """Use a loaded model once: what is missing or of the wrong type shows here, not in the user's first call."""
    z = {}
    if model.n_context_ and hasattr(model, "expand"):
        z = {"z": np.zeros((1, model.n_context_))}
    elif model.n_context_:
        z = {"z": np.array([[_EXAMPLES.get(kind) for _, kind in model.context_.schema]], dtype=object)}
    if hasattr(model, "expand"):
        found = model.scores([model.vocabulary_[:1]], **z)
        if found.shape != (1, len(model.vocabulary_)):
            raise ModelFolderError(f"it scores {found.shape[-1]} elements of a vocabulary of {len(model.vocabulary_)}.")
        return
    with contextlib.suppress(ValueError):  # about the example, which has one member only
        if model.encoder_.vocabularies:
            members = [{name: _EXAMPLES.get(kind) for name, kind in model.encoder_.schema}]
            model.predict([model.vocabulary_[:1]] if hasattr(model, "vocabulary_") else [members], **z)
        else:
            model.predict([np.zeros((1, model.encoder_.numbers))], **z)
