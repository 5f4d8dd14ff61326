"""What an expander has learned, as tensors and plain values: the contents of a model folder."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from ..train.checkpoint import load_weights

_SPARSE = ("data", "indices", "indptr", "shape")
_NETWORK = "network_"


def learned(model: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Split the attributes that end with an underscore into tensors and plain values.

    An array is kept under its name, a sparse matrix in four parts, and `network_` by its weights.
    """
    odd = [token for token in model.vocabulary_ if not isinstance(token, str | int | float | bool)]
    if odd:
        raise ValueError(
            f"the vocabulary holds {odd[0]!r}, a {type(odd[0]).__name__}: a model folder keeps strings and numbers."
        )
    tensors: dict[str, Tensor] = {}
    facts: dict[str, Any] = {}
    for name, value in vars(model).items():
        if not name.endswith("_") or name.startswith("_") or name == "history_":
            continue
        if isinstance(value, nn.Module):
            weights = value.state_dict().items()
            tensors |= {f"{name}.{n}": t.detach().cpu().contiguous().clone() for n, t in weights}
        elif sp.issparse(value):
            tensors |= {f"{name}.{part}": _tensor(np.asarray(getattr(value, part))) for part in _SPARSE}
        elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            tensors[name] = _tensor(value)
        elif not isinstance(value, dict):
            facts[name] = value
    return tensors, facts


def restore(model: Any, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Give a model, with its parameters set, what `learned` returned; what does not fit together is a ValueError."""
    vocabulary = facts.get("vocabulary_")
    if not isinstance(vocabulary, list) or not vocabulary or any(isinstance(t, list | dict) for t in vocabulary):
        raise ValueError("'vocabulary_' is missing or is not a list of strings or numbers.")
    grouped: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        head, _, rest = name.partition(".")
        grouped.setdefault(head, {})[rest] = tensor
    weights = grouped.pop(_NETWORK, {})
    arrays = {n: parts[""].numpy() if set(parts) == {""} else _sparse(n, parts) for n, parts in grouped.items()}
    for name, value in (facts | arrays).items():
        if not name.endswith("_") or name.startswith("_") or hasattr(type(model), name):
            raise ValueError(f"found {name!r}, which a {type(model).__name__} does not learn.")
        if name in ("features_", "table_") and name in arrays and value.shape[0] != len(vocabulary):
            raise ValueError(f"{name!r} has {value.shape[0]} rows for a vocabulary of {len(vocabulary)} elements.")
        setattr(model, name, value)
    if hasattr(model, "new_network"):
        model.network_ = _network(model, weights)


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def _sparse(name: str, parts: dict[str, Tensor]) -> sp.csr_array:
    try:
        data, indices, indptr, shape = (parts[part].numpy() for part in _SPARSE)
        matrix = sp.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
        matrix.check_format()
    except (KeyError, ValueError) as error:
        raise ValueError(f"the matrix {name!r} is not complete: {error}.") from None
    return matrix


def _network(model: Any, tensors: dict[str, Tensor]) -> nn.Module:
    """Build the network of the settings, without memory of its own, and fill it."""
    try:
        with torch.device("meta"):
            network: nn.Module = model.new_network()
    except (TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as error:
        raise ValueError(f"the settings describe no network that can be built: {error}.") from None
    load_weights(network, tensors)
    return network
