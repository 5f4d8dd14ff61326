"""`config.json` of a model folder: settings and learned facts as plain data, checked before anything is built."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import platform
from typing import Any

import numpy as np
import torch

FORMAT, VERSION = "deepsets-model", 1

# Settings of one training on one machine, not of the model. They are never written, and never obeyed when read.
NOT_KEPT = ("checkpoint_dir", "verbose", "on_epoch")


class ModelFolderError(ValueError):
    """A model folder that cannot be written or read: damaged, of another program, or newer than this library."""


def registry() -> dict[str, type]:
    """Return the classes that a model folder may hold, by name. Nothing else is ever created from a folder."""
    from .. import estimators, expand

    classes = [
        value
        for package in (estimators, expand)
        for value in vars(package).values()
        if isinstance(value, type) and hasattr(value, "get_params") and hasattr(value, "fit")
    ]
    return {kind.__name__: kind for kind in classes if kind is not expand.BaseExpander}


def to_config(model: Any, facts: dict[str, Any], weights: str) -> dict[str, Any]:
    """Return the contents of config.json.

    Parameters
    ----------
    model : estimator or Expander
        The model.
    facts : dict
        What it has learned beside its tensors.
    weights : str
        SHA-256 of the weights file.
    """
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
        "versions": versions(),
    }
    return config | {"sha256": checksum(config)}


def checksum(config: dict[str, Any]) -> str:
    """Return the SHA-256 of all entries but the checksum itself, whatever their order and spacing.

    Parameters
    ----------
    config : dict
        Contents of config.json.
    """
    rest = {name: value for name, value in config.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of the libraries that the numbers of a model may depend on."""
    return {
        "deepsets": importlib.metadata.version("deepsets"),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def parse(text: bytes) -> dict[str, Any]:
    """Return the config as a dict whose parts have the right types; nothing is created from it yet.

    Parameters
    ----------
    text : bytes
        Contents of config.json.
    """
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


def to_model(config: dict[str, Any]) -> Any:
    """Return the model of a config, without what it has learned.

    Parameters
    ----------
    config : dict
        A config that :func:`parse` returned.
    """
    classes = registry()
    if config["class"] not in classes:
        raise ModelFolderError(f"it holds a {config['class']!r:.100}; known are {', '.join(classes)}.")
    model: Any = classes[config["class"]]()
    known = set(model.get_params(deep=False)) - set(NOT_KEPT)
    unknown = sorted(set(config["params"]) - known)
    if unknown:
        raise ModelFolderError(f"its config.json sets {unknown[0]!r:.100}, which is no setting of a model folder.")
    for name, value in config["params"].items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ModelFolderError(f"its config.json sets {name!r} to {value}, which is not a finite number.")
    defaults = model.get_params(deep=False)
    tuples = {
        n: tuple(v) for n, v in config["params"].items() if isinstance(v, list) and isinstance(defaults[n], tuple)
    }
    return model.set_params(**config["params"] | tuples)


def check_sizes(config: dict[str, Any], tensors: dict[str, Any]) -> None:
    """Raise an error for sizes that the weights file cannot support, before anything is built from them.

    Parameters
    ----------
    config : dict
        A config that :func:`parse` returned.
    tensors : dict of str to Tensor
        The contents of the weights file.
    """
    most = sum(tensor.numel() for tensor in tensors.values()) + 1000
    for name in ("width", "depth", "n_estimators", "embedding", "phi", "rho"):
        value = config["params"].get(name)
        sizes = value if isinstance(value, list) else [value]
        numbers = [size for size in sizes if isinstance(size, int)]
        if len(sizes) > len(tensors) + 1 or sum(map(abs, numbers)) > most:
            raise ModelFolderError(
                f"its weights do not fit its config.json: {name}={value!r:.100} for a file of {len(tensors)} tensors "
                f"with {most - 1000:,} numbers."
            )


def to_plain(value: Any, name: str) -> Any:
    """Convert a value to what JSON can hold.

    Parameters
    ----------
    value : object
        Numbers, text, None, and lists, tuples and dicts of these.
    name : str
        What it is, for the error message.
    """
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
