"""What all estimators share: parameters, reading X and z, state for model folders."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from ..train import checkpoint_seed
from .columns import Columns, as_table, column_names
from .encoder import ColumnEncoder, looks_like_identifier
from .input import context_names, parse, parse_context
from .layout import Members, Schema
from .state import are_strings, array_facts, to_array, under
from .targets import target_column, target_names, warn_of_target

_COUNTS = ("width", "depth", "n_estimators", "epochs", "batch_size", "patience", "subset")  # at least 1
_AMOUNTS = ("learning_rate", "weight_decay", "noise")  # at least 0
_SHARES = ("dropout", "keep")
_MODELS = ("auto", "deep", "boosting", "forest", "kernel", "linear")
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "columns": (lambda value: not isinstance(value, str) and isinstance(value, Iterable), "a list of columns"),
    "device": (lambda value: value == "auto" or _is_device(value), '"auto" or a device of torch such as "cpu"'),
    "model": (lambda value: value in _MODELS, f"{', '.join(map(repr, _MODELS[:-1]))} or {_MODELS[-1]!r}"),
    "n_jobs": (lambda value: isinstance(value, numbers.Integral) and value != 0, "a number of threads, or -1 for all"),
}
_FLAGS, _NAMES = ("flat_", "_named_context_"), ("target_names_", "context_names_in_")
_FACTS = ("n_features_in_", "n_context_", "n_sets_", "n_members_", "n_outputs_", *_FLAGS, *_NAMES)
_ARRAYS = ("classes_", "feature_names_in_")


class TableEstimator(BaseEstimator):
    """Base of all estimators: reads members and set-level values, and learns how to encode their columns."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.input_tags.allow_nan = True
        tags.non_deterministic = False
        return tags

    def _check_parameters(self) -> None:
        """Refuse parameters out of range, in scikit-learn's way: when fit is called."""
        for name, value in self.get_params(deep=False).items():
            if value is None:
                continue
            if name in _COUNTS + _AMOUNTS:
                kind, least, what = (
                    (numbers.Integral, 1, "an integer") if name in _COUNTS else (numbers.Real, 0.0, "a number")
                )
                if isinstance(value, bool) or not isinstance(value, kind) or not float(value) >= least:
                    raise ValueError(f"{name} must be {what} of at least {least}, found {value!r}.")
            if name in _KINDS and not _KINDS[name][0](value):
                raise ValueError(f"{name} must be {_KINDS[name][1]}, found {value!r}.")
            if name in _SHARES and (not isinstance(value, numbers.Real) or not 0 <= float(value) <= 1):
                raise ValueError(f"{name} must be a number between 0 and 1, found {value!r}.")

    def _check_fitted(self) -> None:
        if not hasattr(self, "encoder_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first.")

    def _seed(self) -> int:
        state = self.random_state
        if isinstance(state, np.random.RandomState):
            return int(state.randint(2**31))
        return int(np.random.SeedSequence().generate_state(1)[0]) if state is None else int(state)

    def _fit_seed(self, checkpoint_dir: str | None) -> int:
        """Seed of a fit; without a `random_state`, that of the interrupted fit in `checkpoint_dir`."""
        stored = checkpoint_seed(checkpoint_dir) if checkpoint_dir is not None and self.random_state is None else None
        return self._seed() if stored is None else stored

    # -------------------------------------------------------------------------------------------------- reading

    def _read_first(self, X: Any, y: Any, z: Any) -> tuple[Members, Columns | None, Any]:
        """Read training data and learn the names of its columns; members, set-level values and targets."""
        table = as_table(X)
        X = X if table is None else table
        named = target_names(X, y)
        context = context_names(z, X)
        columns = None if getattr(self, "columns", None) is None else list(self.columns)
        schema = Schema(self.by, columns, context, tuple(named or ()))
        members = parse(X, schema)
        set_level = parse_context(None if context else z, members)
        for name in ("feature_names_in_", "vocabulary_", "target_names_", "context_names_in_"):
            self.__dict__.pop(name, None)
        if named is not None:
            self.target_names_ = named
        if set_level is not None and set_level.schema is not None:
            self.context_names_in_ = [name for name, _ in set_level.schema]
        self._named_context_ = bool(context)
        self._sizes_in_fit = (
            {} if members.names is None else dict(zip(members.names.tolist(), members.sizes, strict=True))
        )
        found = members.columns
        if found.schema is not None and (members.rows is not None or found.schema[0][0] != "token"):
            self.feature_names_in_ = np.array([name for name, _ in found.schema], dtype=object)
            if named is None:
                warn_of_target(X, y, members, self.feature_names_in_)
        return members, set_level, target_column(X, y)

    def _learn_columns(self, members: Members, set_level: Columns | None) -> None:
        found = members.columns
        self.encoder_ = ColumnEncoder().learn(found)
        self.context_ = None if set_level is None else ColumnEncoder().learn(set_level)
        self.n_features_in_ = found.numbers.shape[1] if found.schema is None else len(found.schema)
        self.n_context_ = 0 if set_level is None else len(set_level.schema or [])
        self.n_sets_, self.n_members_ = len(members), members.total
        if len(found.categories) == 1 and found.numbers.shape[1] == 0:
            self.vocabulary_ = self.encoder_.vocabularies[0]
        for j, name in enumerate(found.number_names or []):
            if looks_like_identifier(found.numbers[:, j], name):
                warnings.warn(
                    f"the column {name!r} looks like an identifier: a different whole number in almost every row. "
                    "It is used as a number; leave it out with columns=[…] if it is a name.",
                    UserWarning,
                    stacklevel=4,
                )

    def _read(self, X: Any, z: Any = None, y: Any = None) -> tuple[Members, Columns | None, Any]:
        """Read X, z and y with the columns of `fit`; members, set-level values and targets."""
        self._check_fitted()
        table = as_table(X)
        X = X if table is None else table
        encoder = self.encoder_
        kinds = dict(encoder.schema or []) | dict((self.context_.schema if self.context_ else None) or [])
        columns = (
            [name for name, _ in encoder.schema] if hasattr(self, "feature_names_in_") and encoder.schema else None
        )
        named = self._named_context_ and z is None
        if named and columns is not None and not set(self.context_names_in_) <= set(column_names(getattr(X, "obs", X))):
            raise ValueError(
                f"the set-level columns {', '.join(self.context_names_in_)} are needed: they are not in X, "
                "and z is not given."
            )
        schema = Schema(
            self.by, columns, self.context_names_in_ if named else None, tuple(target_names(X, y) or ()), kinds or None
        )
        members = parse(X, schema)
        encoder.check(members.columns, type(self).__name__)
        set_level = parse_context(z, members, self.context_.kinds() if self.context_ else None)
        self._check_context(set_level)
        if y is not None:
            self._warn_split(members)
        return members, set_level, target_column(X, y)

    def _warn_split(self, members: Members) -> None:
        """Warn where a set is scored that had other rows in fit: plain cross-validation splits the rows of sets."""
        known = getattr(self, "_sizes_in_fit", {})
        if members.names is None or not known:
            return
        found = zip(members.names.tolist(), members.sizes, strict=True)
        split = [name for name, size in found if known.get(name, size) != size]
        if split:
            warnings.warn(
                f"{len(split)} sets, for example {split[0]!r}, have some of their rows here and others in fit: the "
                f"rows of a set were split. Cross-validate tables by sets: cv=GroupKFold(), groups=table[{self.by!r}].",
                UserWarning,
                stacklevel=4,
            )

    def _check_context(self, found: Columns | None) -> None:
        if self.context_ is None:
            if found is not None:
                raise ValueError("z was given, but the estimator was fitted without z.")
            return
        wanted = self.n_context_
        if found is None:
            raise ValueError(f"the estimator was fitted with z of {wanted} columns: z is needed here too.")
        if len(found.schema or []) != wanted:
            raise ValueError(f"z has {len(found.schema or [])} columns, but the estimator was fitted with {wanted}.")

    # ---------------------------------------------------------------------------------------------------- state

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
        facts: dict[str, Any] = {name: getattr(self, name) for name in _FACTS if hasattr(self, name)}
        facts |= {name: array_facts(getattr(self, name), name) for name in _ARRAYS if hasattr(self, name)}
        for key, encoder in (("encoder", self.encoder_), ("context", self.context_)):
            facts[key] = None
            if encoder is not None:
                found, facts[key] = encoder.get_state()
                tensors |= {f"{key}.{name}": value for name, value in found.items()}
        self._add_state(tensors, facts)
        return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}, facts

    def set_state(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> Self:
        """Restore what `get_state` gave; nothing larger than the tensors is built.

        Raises
        ------
        ValueError
            Where tensors and facts do not describe a fitted estimator of this class.

        """
        try:
            self._set_state(tensors, facts)
        except Exception as error:
            self.__dict__.pop("encoder_", None)
            if isinstance(error, ValueError):
                raise
            raise ValueError(
                f"the state does not describe a fitted {type(self).__name__}: {type(error).__name__}: {error}."
            ) from None
        return self

    def _set_state(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        self._check_parameters()
        if not isinstance(facts, dict):
            raise ValueError(f"the facts are not a dict, found {type(facts).__name__}.")
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and bool(tensor.isnan().any()):
                raise ValueError(f"the tensor {name!r} holds NaN.")
        for name in _FACTS:
            if name in facts:
                value = facts[name]
                good = type(value) is int and 0 <= value < 1 << 50
                if name in _FLAGS + _NAMES:
                    good = isinstance(value, bool) if name in _FLAGS else are_strings(value)
                if not good:
                    raise ValueError(f"{name!r} is not valid: found {value!r}.")
                setattr(self, name, value)
        for name in _ARRAYS:
            if name in facts:
                setattr(self, name, to_array(facts[name], name))
        for key in ("encoder", "context"):
            found = facts.get(key)
            if not isinstance(found, dict) and (key == "encoder" or found is not None):
                raise ValueError(f"the facts lack a dict {key!r}.")
            encoder = None if found is None else ColumnEncoder.from_state(under(tensors, key), found)
            setattr(self, f"{key}_", encoder)
        columns = self.encoder_.numbers if self.encoder_.schema is None else len(self.encoder_.schema)
        set_level = 0 if self.context_ is None else len(self.context_.schema or [])
        if (self.n_features_in_, self.n_context_) != (columns, set_level):
            raise ValueError("the numbers of columns do not fit the encoders.")
        if hasattr(self, "feature_names_in_") and len(self.feature_names_in_) != columns:
            raise ValueError(f"there are {len(self.feature_names_in_)} feature names for {columns} columns.")
        if len(self.encoder_.vocabularies) == 1 and self.encoder_.numbers == 0:
            self.vocabulary_ = self.encoder_.vocabularies[0]
        self._restore(tensors, facts)

    def _add_state(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        raise NotImplementedError

    def _restore(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        raise NotImplementedError


def _is_device(name: Any) -> bool:
    try:
        torch.device(name)
    except (RuntimeError, TypeError):
        return False
    return True
