"""What an expander has learnt, as tensors for `model.safetensors`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .model_config import ModelFolderError

_NETWORK = "network_."
_SPARSE = ("data", "indices", "indptr", "shape")


def pack(expander: Any) -> dict[str, Tensor]:
    """Arrays of numbers under their name, a sparse matrix in four parts, a network with its weights."""
    odd = [token for token in expander.vocabulary_ if not isinstance(token, str | int | float | bool)]
    if odd:
        raise ModelFolderError(
            f"the vocabulary holds {odd[0]!r}, a {type(odd[0]).__name__}: a model folder keeps strings and numbers."
        )
    arrays: dict[str, Any] = {}
    for name, value in vars(expander).items():
        if not name.endswith("_"):
            continue
        if sp.issparse(value):
            arrays |= {f"{name}.{part}": np.asarray(getattr(value, part)) for part in _SPARSE}
        elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            arrays[name] = value
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    if hasattr(expander, "network_"):
        tensors |= {
            _NETWORK + n: t.detach().cpu().contiguous().clone() for n, t in expander.network_.state_dict().items()
        }
    return tensors


def names(tensors: dict[str, Tensor]) -> set[str]:
    """The attributes that are kept as tensors."""
    return {name.split(".")[0] for name in tensors}


def unpack(expander: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gives the expander its arrays; returns the weights of its network."""
    vocabulary = getattr(expander, "vocabulary_", None)
    if not isinstance(vocabulary, list) or not vocabulary or any(isinstance(t, list | dict) for t in vocabulary):
        raise ModelFolderError("its config.json lacks a valid 'vocabulary_', a list of strings or numbers.")
    arrays = {n: t.numpy() for n, t in tensors.items() if not n.startswith(_NETWORK)}
    for name in names(tensors) - {_NETWORK[:-1]}:
        if not name.endswith("_") or name.startswith("_") or hasattr(type(expander), name):
            raise ModelFolderError(f"its weights hold {name!r}, which a {type(expander).__name__} does not learn.")
        try:
            value = arrays[name] if name in arrays else _sparse({part: arrays[f"{name}.{part}"] for part in _SPARSE})
        except (KeyError, ValueError) as error:
            raise ModelFolderError(f"its matrix {name!r} is not whole: {error}.") from None
        if name in ("features_", "table_") and value.shape[0] != len(vocabulary):
            raise ModelFolderError(
                f"its {name!r} has {value.shape[0]} rows for a vocabulary of {len(vocabulary)} elements."
            )
        setattr(expander, name, value)
    return {n.removeprefix(_NETWORK): t for n, t in tensors.items() if n.startswith(_NETWORK)}


def _sparse(parts: dict[str, np.ndarray]) -> sp.csr_array:
    matrix = sp.csr_array((parts["data"], parts["indices"], parts["indptr"]), shape=tuple(parts["shape"].tolist()))
    matrix.check_format()
    return matrix
