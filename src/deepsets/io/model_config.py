"""`config.json` of a model folder: an estimator's settings and what it learnt beside the weights, as plain data."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Collection
from typing import Any

import numpy as np
import torch

FORMAT, VERSION = "deepsets-model", 1

# What belongs to one training on one machine, not to the model.
NOT_KEPT = ("checkpoint_dir", "verbose")
_NOT_FITTED_DATA = ("network_", "history_")
_KINDS = "biufUO"  # booleans, integers, floats, strings, and objects that are one of these


class ModelFolderError(ValueError):
    """A model folder that cannot be written or read: damaged, foreign, or newer than this library."""


def registry() -> dict[str, type]:
    """The estimators a folder may hold, by name. Nothing else is ever made from a folder."""
    from .. import estimators as e
    from .. import expand

    classes = [e.SetRegressor, e.SetClassifier, e.MemberRegressor, e.MemberClassifier, e.OddOneOut]
    classes += [c for c in vars(expand).values() if isinstance(c, type) and issubclass(c, expand.BaseExpander)]
    return {kind.__name__: kind for kind in classes if kind is not expand.BaseExpander}


def to_config(estimator: Any, weights: str, elsewhere: Collection[str] = ()) -> dict[str, Any]:
    """The contents of config.json. weights: sha256 of the weights file; elsewhere: what is learnt and stands in it."""
    not_kept = {*NOT_KEPT, *getattr(estimator, "not_saved", ())}
    params = {name: value for name, value in estimator.get_params().items() if name not in not_kept}
    if isinstance(params.get("random_state"), np.random.RandomState):
        params["random_state"] = None  # a generator in the middle of its stream is no setting
    fitted = {n: v for n, v in vars(estimator).items() if n.endswith("_") and n not in (*_NOT_FITTED_DATA, *elsewhere)}
    config = {
        "format": FORMAT,
        "format_version": VERSION,
        "class": type(estimator).__name__,
        "params": {name: _plain(value, name) for name, value in params.items()},
        "fitted": {name: _plain(value, name) for name, value in sorted(fitted.items())},
        "weights": {"sha256": weights},
        "versions": versions(),
    }
    return config | {"sha256": checksum(config)}


def checksum(config: dict[str, Any]) -> str:
    """Of all entries but this one, whatever their order and spacing."""
    rest = {name: value for name, value in config.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def versions() -> dict[str, str]:
    """What the numbers of a model may depend on."""
    return {
        "deepsets": importlib.metadata.version("deepsets"),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def parse(text: bytes) -> dict[str, Any]:
    """The config as a dict, with every part of the type that is wanted; nothing is made from it yet."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFolderError(f"its config.json is not valid JSON, it may be cut short or damaged: {error}.") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        found = config.get("format") if isinstance(config, dict) else type(config).__name__
        raise ModelFolderError(
            f'its config.json was not written by this library: wanted "format": "{FORMAT}", found {found!r}.'
        )
    version = config.get("format_version")
    if type(version) is not int or version < 1:
        raise ModelFolderError(f"its config.json has no valid format_version: found {version!r}.")
    if version > VERSION:
        made = (config.get("versions") or {}).get("deepsets", "a newer version")
        raise ModelFolderError(
            f"it has format version {version} (written by deepsets {made}), but this deepsets reads up to {VERSION}: "
            "upgrade deepsets."
        )
    if config.get("sha256") != checksum(config):
        raise ModelFolderError("its config.json is not the one that was saved: the checksum differs.")
    for name, kind in {"class": str, "params": dict, "fitted": dict, "weights": dict}.items():
        if not isinstance(config.get(name), kind):
            raise ModelFolderError(f"its config.json lacks a valid {name!r}: found {type(config.get(name)).__name__}.")
    return config


def to_estimator(config: dict[str, Any]) -> Any:
    """The estimator of a config, without its network."""
    classes = registry()
    if config["class"] not in classes:
        raise ModelFolderError(f"it holds a {config['class']!r}; known are {', '.join(classes)}.")
    kind = classes[config["class"]]
    estimator = kind()
    unknown = sorted(set(config["params"]) - set(estimator.get_params()))
    if unknown:
        raise ModelFolderError(f"its config.json sets {unknown[0]!r}, which {kind.__name__} does not have.")
    estimator.set_params(**{name: _value(value, name) for name, value in config["params"].items()})
    for name, value in config["fitted"].items():
        if not name.endswith("_") or name.startswith("__") or hasattr(kind, name) or name in _NOT_FITTED_DATA:
            raise ModelFolderError(f"its config.json gives {name!r} as learnt, which a {kind.__name__} does not learn.")
        setattr(estimator, name, _value(value, name))
    if hasattr(estimator, "n_outputs_") or not hasattr(estimator, "expand"):
        _check(estimator)
    return estimator


def _check(estimator: Any) -> None:
    """The learnt numbers are there and fit together."""
    for name in ("n_features_in_", "n_context_", "n_outputs_"):
        value = getattr(estimator, name, None)
        if type(value) is not int or value < 0:
            raise ModelFolderError(f"its config.json lacks a valid {name!r}: found {value!r}.")
    for name, count in {"classes_": "n_outputs_", "feature_names_in_": "n_features_in_"}.items():
        found, wanted = getattr(estimator, name, None), getattr(estimator, count)
        if found is not None and (not isinstance(found, np.ndarray) or found.shape != (wanted,)):
            raise ModelFolderError(f"its {name!r} must be a list of {count} = {wanted} entries, found {found!r}.")
    if not isinstance(getattr(estimator, "vocabulary_", []), list):
        raise ModelFolderError("its 'vocabulary_' is not a list.")
    if hasattr(type(estimator), "predict_proba") and not hasattr(estimator, "classes_") and estimator.n_outputs_ > 1:
        raise ModelFolderError("its config.json lacks 'classes_', the labels of the classifier.")


def _plain(value: Any, name: str) -> Any:
    """A value as JSON; an array as its entries and its dtype."""
    if isinstance(value, np.ndarray):
        entries = value.tolist()
        flat = value.ravel().tolist()
        if value.dtype.kind not in _KINDS or not all(isinstance(v, str | int | float | bool) for v in flat):
            raise ModelFolderError(
                f"{name} holds {value.dtype} entries such as {str(value.ravel()[0])!r}: a model folder keeps strings, "
                "integers, floats and booleans."
            )
        return {"dtype": value.dtype.str if value.dtype.kind != "O" else "object", "entries": entries}
    if isinstance(value, np.generic):
        return _plain(value.item(), name)
    if isinstance(value, list | tuple):
        return [_plain(v, name) for v in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise ModelFolderError(f"{name} is a {type(value).__name__}, which a model folder cannot keep: {value!r}.")


def _value(value: Any, name: str) -> Any:
    """The reverse of `_plain`."""
    if not isinstance(value, dict):
        return value
    try:
        dtype = np.dtype(value["dtype"])
        if dtype.kind not in _KINDS:
            raise ValueError(f"entries of {dtype}")
        return np.array(value["entries"], dtype=dtype)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelFolderError(f"{name!r} of its config.json cannot be read: {error}.") from None
