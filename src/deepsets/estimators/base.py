"""What all estimators share: parameters, reading X and z, state for model folders."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from ..train import checkpoint_seed
from .columns import Columns
from .encoder import ColumnEncoder, looks_like_identifier
from .input import context_names, parse, parse_context
from .layout import Members, Schema
from .state import Stateful
from .targets import target_names

_AT_LEAST = {
    "width": 1,
    "depth": 1,
    "n_estimators": 1,
    "epochs": 1,
    "batch_size": 1,
    "patience": 1,
    "subset": 1,
    "learning_rate": 0.0,
    "weight_decay": 0.0,
    "noise": 0.0,
}
_SHARES = ("dropout", "keep")


class TableEstimator(Stateful, BaseEstimator):
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
            if name in _AT_LEAST:
                least = _AT_LEAST[name]
                whole = isinstance(least, int)
                kind = numbers.Integral if whole else numbers.Real
                if isinstance(value, bool) or not isinstance(value, kind) or not float(value) >= least:
                    raise ValueError(
                        f"{name} must be {'an integer' if whole else 'a number'} of at least {least}, found {value!r}."
                    )
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

    def _read_first(self, X: Any, y: Any, z: Any) -> tuple[Members, Columns | None]:
        """Read training data; learn names and kinds of the columns, and their encoding."""
        named = target_names(X, y)
        context = context_names(z, X)
        columns = None if getattr(self, "columns", None) is None else list(self.columns)
        schema = Schema(self.by, columns, context, tuple(named or ()))
        members = parse(X, schema)
        set_level = parse_context(None if context else z, X, members)
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
        return members, set_level

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

    def _read(self, X: Any, z: Any = None, y: Any = None) -> tuple[Members, Columns | None]:
        """Read X and z for prediction, with the columns of `fit`."""
        self._check_fitted()
        encoder = self.encoder_
        kinds = dict(encoder.schema or []) | dict((self.context_.schema if self.context_ else None) or [])
        columns = (
            [name for name, _ in encoder.schema] if hasattr(self, "feature_names_in_") and encoder.schema else None
        )
        named = self._named_context_ and z is None
        if named and columns is not None and not _has_columns(X, self.context_names_in_):
            raise ValueError(
                f"the set-level columns {', '.join(self.context_names_in_)} are needed: they are not in X, "
                "and z is not given."
            )
        schema = Schema(
            self.by, columns, self.context_names_in_ if named else None, tuple(target_names(X, y) or ()), kinds or None
        )
        members = parse(X, schema)
        encoder.check(members.columns, type(self).__name__)
        set_level = parse_context(z, X, members, self.context_.kinds() if self.context_ else None)
        self._check_context(set_level)
        if y is not None:
            self._warn_split(members)
        return members, set_level

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


def _has_columns(X: Any, names: list[str]) -> bool:
    table = X.obs if hasattr(X, "obs") else X
    known = getattr(table, "column_names", None) or list(getattr(table, "columns", []))
    return all(name in known for name in names)
