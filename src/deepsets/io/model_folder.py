"""Writing and reading model folders."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from sklearn.exceptions import NotFittedError
from torch import Tensor

from ..files import atomic_folder, locked
from .model_card import card
from .model_config import ModelFolderError, check_sizes, parse, registry, to_config, to_model

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
_EXAMPLES = {"number": 0.0, "category": "x", "datetime": datetime.datetime(2000, 1, 1)}


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
    name = type(model).__name__
    known: Any = registry().get(name)
    if known is not type(model):
        raise ModelFolderError(f"a model folder holds one of {', '.join(registry())}; found a {name}.")
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
    config = to_config(model, facts, hashlib.sha256(weights).hexdigest())
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
        config = parse((path / CONFIG).read_bytes())
        weights = (path / WEIGHTS).read_bytes()
        if hashlib.sha256(weights).hexdigest() != config["weights"].get("sha256"):
            raise ModelFolderError(
                f"its {WEIGHTS} ({len(weights)} bytes) is not the file that was saved: the checksum differs. "
                "It may be truncated, damaged or of another model."
            )
        return _build(config, _tensors(weights))
    except ModelFolderError as error:
        raise ModelFolderError(f"{path} cannot be loaded: {error}") from None


def _build(config: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    _check_weights(tensors)
    check_sizes(config, tensors)
    try:
        model = to_model(config)
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


def _try_out(model: Any) -> None:
    """Use a loaded model once: what is missing or of the wrong type shows here, not in the user's first call."""
    z = {"z": np.zeros((1, model.n_context_))} if model.n_context_ else {}
    with contextlib.suppress(ValueError):  # about the example, which has one member only
        if hasattr(model, "expand"):
            model.score(model.vocabulary_[:1], model.vocabulary_[:1], **z)
        elif model.encoder_.vocabularies:
            members = [{name: _EXAMPLES.get(kind) for name, kind in model.encoder_.schema}]
            model.predict([model.vocabulary_[:1]] if hasattr(model, "vocabulary_") else [members], **z)
        else:
            model.predict([np.zeros((1, model.encoder_.numbers))], **z)


def check_free(path: Path, overwrite: bool) -> None:
    """Raise an error for a path that exists; with `overwrite`, unless it is a model folder or an empty folder.

    Parameters
    ----------
    path : Path
        The folder to write.
    overwrite : bool
        Whether a model folder may be replaced.
    """
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
        tensors, facts = dict(model.state_dict()), {"layers": repr(model)}
        facts["options"] = str([sorted(_options(part)) for part in model.modules()])
    else:
        tensors, learned = model.get_state()
        facts = to_config(model, learned, "")
        facts = {name: facts[name] for name in ("class", "params", "fitted")}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        plain = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def _options(module: torch.nn.Module) -> list[str]:
    """Settings of a layer that its repr may not show."""
    plain = (str, int, float, bool, type(None))
    return [
        f"{n}={v}"
        for n, v in vars(module).items()
        if isinstance(v, plain) and not n.startswith("_") and n != "training"
    ]


def _check_weights(tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and bool(tensor.isnan().any()):
            raise ModelFolderError(f"its tensor {name!r} holds NaN: the training diverged, or the file is damaged.")


def _tensors(weights: bytes) -> dict[str, Tensor]:
    try:
        # Copies: memory of torch's own is aligned, and the sums of a matrix product may depend on that.
        return {name: tensor.clone() for name, tensor in safetensors.torch.load(weights).items()}
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ModelFolderError(f"its {WEIGHTS} is not a safetensors file: {error}.") from None
