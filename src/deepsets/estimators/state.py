"""State of estimators as tensors and JSON-able facts: checked before anything is built from it."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch

from .encoder import ColumnEncoder


class Stateful:
    """`get_state` and `set_state` of all estimators; subclasses add their models."""

    _check_fitted: Any
    encoder_: Any
    context_: Any
    n_features_in_: int
    n_context_: int
    feature_names_in_: Any

    _FACTS = (
        "n_features_in_",
        "n_context_",
        "n_sets_",
        "n_members_",
        "n_outputs_",
        "flat_",
        "_named_context_",
        "target_names_",
        "context_names_in_",
    )

    def get_state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Everything learned, as tensors and JSON-able facts; with the parameters it rebuilds the estimator.

        Returns
        -------
        tensors : dict of str to Tensor
        facts : dict
            Numbers, strings, booleans, None, lists and dicts of them.

        """
        self._check_fitted()
        tensors: dict[str, torch.Tensor] = {}
        facts: dict[str, Any] = {name: getattr(self, name) for name in self._FACTS if hasattr(self, name)}
        for key, encoder in (("encoder", self.encoder_), ("context", self.context_)):
            facts[key] = None
            if encoder is not None:
                found, facts[key] = encoder.get_state()
                tensors |= {f"{key}.{name}": value for name, value in found.items()}
        for name in ("classes_", "feature_names_in_"):
            if hasattr(self, name):
                facts[name] = array_facts(getattr(self, name), name)
        self._add_state(tensors, facts)
        return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}, facts

    def set_state(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> Self:
        """Restore what `get_state` gave; nothing larger than the tensors is built.

        Raises
        ------
        ValueError
            Where tensors and facts do not describe a fitted estimator of this class.

        """
        if not isinstance(facts, dict):
            raise ValueError(f"the facts are not a dict, found {type(facts).__name__}.")
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and bool(tensor.isnan().any()):
                raise ValueError(f"the tensor {name!r} holds NaN.")
        try:
            for name in self._FACTS:
                if name in facts:
                    setattr(self, name, plain_fact(facts[name], name))
            self.encoder_ = ColumnEncoder.from_state(under(tensors, "encoder"), dict_of(facts, "encoder"))
            self.context_ = None
            if facts.get("context") is not None:
                self.context_ = ColumnEncoder.from_state(under(tensors, "context"), dict_of(facts, "context"))
            for name in ("classes_", "feature_names_in_"):
                if name in facts:
                    setattr(self, name, to_array(facts[name], name))
            encoder = self.encoder_
            columns = encoder.numbers if encoder.schema is None else len(encoder.schema)
            if self.n_features_in_ != columns or self.n_context_ != (
                0 if self.context_ is None else len(self.context_.schema or [])
            ):
                raise ValueError("the numbers of columns do not fit the encoders.")
            if hasattr(self, "feature_names_in_") and len(self.feature_names_in_) != columns:
                raise ValueError(f"there are {len(self.feature_names_in_)} feature names for {columns} columns.")
            if len(encoder.vocabularies) == 1 and encoder.numbers == 0:
                self.vocabulary_ = encoder.vocabularies[0]
            self._restore(tensors, facts)
        except (AttributeError, KeyError, TypeError, IndexError, RuntimeError, OverflowError, MemoryError) as error:
            self.__dict__.pop("encoder_", None)
            raise ValueError(
                f"the state does not describe a fitted {type(self).__name__}: {type(error).__name__}: {error}."
            ) from None
        except ValueError:
            self.__dict__.pop("encoder_", None)
            raise
        return self

    def _add_state(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        raise NotImplementedError

    def _restore(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        raise NotImplementedError


def load_weights(network: torch.nn.Module, tensors: dict[str, torch.Tensor]) -> None:
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


def bounded(value: Any, name: str, most: int, least: int = 1) -> int:
    """A whole number of a model file, refused where it is out of range."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number between {least} and {most}, found {value!r}.")
    return value


def under(parts: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """The tensors whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix + "."): part for name, part in parts.items() if name.startswith(prefix + ".")}


def dict_of(facts: dict[str, Any], name: str) -> dict[str, Any]:
    """A dict among the facts of a model file."""
    if not isinstance(facts.get(name), dict):
        raise ValueError(f"the facts lack a dict {name!r}.")
    return facts[name]


def plain_fact(value: Any, name: str) -> Any:
    """A flag, a list of names or a count of a model file, checked."""
    if name in ("flat_", "_named_context_"):
        good = isinstance(value, bool)
    elif name in ("target_names_", "context_names_in_"):
        good = isinstance(value, list) and all(isinstance(v, str) for v in value)
    else:
        good = type(value) is int and 0 <= value < 1 << 50
    if not good:
        raise ValueError(f"{name!r} is not valid: found {value!r}.")
    return value


def array_facts(array: np.ndarray, name: str) -> dict[str, Any]:
    """Labels or names as JSON-able facts."""
    entries = array.tolist()
    if array.dtype.kind not in "biufUO" or not all(isinstance(v, str | int | float | bool) for v in entries):
        raise ValueError(
            f"{name} holds {array.dtype} entries such as {entries[0]!r}: strings, numbers and booleans can be saved."
        )
    return {
        "dtype": "object"
        if array.dtype.kind == "O"
        else array.dtype.kind + (str(array.dtype.itemsize) if array.dtype.kind not in "bU" else ""),
        "entries": entries,
    }


def to_array(facts: Any, name: str) -> np.ndarray:
    """Inverse of `array_facts`."""
    entries, dtype = (facts.get("entries"), facts.get("dtype")) if isinstance(facts, dict) else (None, None)
    if not isinstance(entries, list) or not all(isinstance(v, str | int | float | bool) for v in entries):
        raise ValueError(f"{name!r} is not a list of entries.")
    if dtype not in ("object", "b", "U", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"):
        raise ValueError(f"{name!r} has the unknown type {dtype!r}.")
    return np.array(entries, dtype={"object": object, "b": bool, "U": None}.get(dtype, dtype))
