"""What a model has learned, as tensors for `model.safetensors` and plain values for `config.json`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .model_config import ModelFolderError

_NETWORK = "network_."
_SPARSE = ("data", "indices", "indptr", "shape")
_NOT_FACTS = ("network_", "history_")


def get_state(model: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return what a fitted model has learned.

    Parameters
    ----------
    model : estimator or Expander
        A fitted model.

    Returns
    -------
    tensors : dict of str to Tensor
        Weights and arrays.
    facts : dict of str to object
        Everything else: numbers, text, and lists and arrays of these.
    """
    if hasattr(model, "get_state"):
        return model.get_state()
    tensors: dict[str, Tensor] = {}
    facts: dict[str, Any] = {}
    for name, value in vars(model).items():
        if not name.endswith("_") or name in _NOT_FACTS:
            continue
        if sp.issparse(value):
            tensors |= {f"{name}.{part}": _tensor(getattr(value, part)) for part in _SPARSE}
        elif hasattr(model, "expand") and isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            tensors[name] = _tensor(value)
        else:
            facts[name] = value
    if hasattr(model, "network_"):
        prefix = _NETWORK if hasattr(model, "expand") else ""
        tensors |= {prefix + n: t.detach().cpu().contiguous().clone() for n, t in model.network_.state_dict().items()}
    return tensors, facts


def set_state(model: Any, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Give an unfitted model what another one has learned.

    Parameters
    ----------
    model : estimator or Expander
        A model with its settings.
    tensors, facts
        As returned by :func:`get_state`.
    """
    if hasattr(model, "set_state"):
        model.set_state(tensors, facts)
        return
    kind = type(model)
    for name, value in facts.items():
        if not name.endswith("_") or name.startswith("__") or hasattr(kind, name) or name in _NOT_FACTS:
            raise ModelFolderError(
                f"its config.json gives {name!r} as learned, which a {kind.__name__} does not learn."
            )
        setattr(model, name, value)
    expander = hasattr(model, "expand")
    if expander:
        tensors = _set_arrays(model, tensors)
    if hasattr(model, "_new_network"):
        if not hasattr(model, "n_outputs_") and not expander:
            raise ModelFolderError("its config.json lacks 'n_outputs_'.")
        model.network_ = _network(model, tensors)
    if expander:
        model._after_load()


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def _set_arrays(expander: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Set the arrays of an expander; returns the weights of its network."""
    odd = [n for n, t in tensors.items() if t.dtype == torch.bfloat16 or t.is_complex()]
    if odd:
        raise ModelFolderError(f"its tensor {odd[0]!r} has an unexpected type, {tensors[odd[0]].dtype}.")
    arrays = {n: t.numpy() for n, t in tensors.items() if not n.startswith(_NETWORK)}
    for name in {n.split(".")[0] for n in arrays}:
        if not name.endswith("_") or name.startswith("_") or hasattr(type(expander), name):
            raise ModelFolderError(f"its weights hold {name!r}, which a {type(expander).__name__} does not learn.")
        try:
            value = arrays[name] if name in arrays else _sparse({part: arrays[f"{name}.{part}"] for part in _SPARSE})
        except (KeyError, ValueError) as error:
            raise ModelFolderError(f"its matrix {name!r} is not complete: {error}.") from None
        if name in ("features_", "table_") and (value.ndim != 2 or value.shape[0] != len(expander.vocabulary_)):
            raise ModelFolderError(
                f"its {name!r} has shape {value.shape} for a vocabulary of {len(expander.vocabulary_)} elements."
            )
        setattr(expander, name, value)
    return {n.removeprefix(_NETWORK): t for n, t in tensors.items() if n.startswith(_NETWORK)}


def _sparse(parts: dict[str, np.ndarray]) -> sp.csr_array:
    matrix = sp.csr_array((parts["data"], parts["indices"], parts["indptr"]), shape=tuple(parts["shape"].tolist()))
    matrix.check_format()
    return matrix


def _network(model: Any, tensors: dict[str, Tensor]) -> torch.nn.Module:
    """The network of the settings, built without memory of its own and filled with the tensors of the file."""
    try:
        with torch.device("meta"):
            network = model._new_network()
    except (TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as error:
        raise ModelFolderError(f"its config.json describes no network that can be built: {error}.") from None
    wanted = network.state_dict()
    for name in sorted(set(wanted) ^ set(tensors)):
        where = f"lacks the tensor {name!r}" if name in wanted else f"has an unexpected tensor {name!r}"
        raise ModelFolderError(f"its weights do not fit its config.json: the file {where}.")
    for name, tensor in tensors.items():
        if (tensor.shape, tensor.dtype) != (wanted[name].shape, wanted[name].dtype):
            raise ModelFolderError(
                f"its weights do not fit its config.json: {name!r} has shape {tuple(tensor.shape)} of {tensor.dtype}, "
                f"wanted {tuple(wanted[name].shape)} of {wanted[name].dtype}."
            )
    network.load_state_dict(tensors, assign=True)
    return network.eval()
