"""Elements of a fitted expander: look-up of what users give, checks, and the learned state."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from torch import Tensor

from . import state
from .input import as_rows, is_rows, read_z
from .vocabulary import ParsedQuery, UnknownElement, UnknownElementWarning, Vocabulary, listed, plain_element

Rows: TypeAlias = "np.ndarray | sp.csr_array"  # (n, D) features
Members: TypeAlias = "np.ndarray | sp.csr_array"  # (n,) ids of the vocabulary, or (n, D) features


class ElementLookup(BaseEstimator):
    """The part of `BaseExpander` that knows its vocabulary: reads queries, checks them, keeps the learned state."""

    accepts_z: ClassVar[bool] = False
    # Shares of the vocabulary that do as well as an odd member, and better than a member that belongs: `odd_member`.
    odd_shares: ClassVar[tuple[float, float]] = (0.1, 1 / 3)
    not_saved: ClassVar[tuple[str, ...]] = ()  # parameters that are part of what was learned

    vocabulary_: list[Any]
    features_: Rows | None  # (V, D); subclasses that keep them in another form set it to None
    n_features_in_: int
    n_context_: int

    def _answers_empty(self) -> bool:
        """Whether a query without members is allowed; with z it may be."""
        return False

    def parse(self, query: Any) -> ParsedQuery:
        """Read a query as people write it: known elements, and unknown ones with suggestions.

        Parameters
        ----------
        query : list or str
            Elements, or text; see `Vocabulary.parse`.

        Returns
        -------
        ParsedQuery
            With `members` and `unknown`.

        """
        self._check_fitted()
        return self._vocabulary.parse(query)

    def find(self, element: Any) -> int | None:
        """Return the place of an element in `vocabulary_`, or None if it is not known in any spelling.

        Parameters
        ----------
        element : object
            An element as it was fitted, or a string spelled like it.

        Returns
        -------
        int or None

        """
        self._check_fitted()
        return self._vocabulary.find(element)

    def ids(self, elements: Any, where: str = "the query") -> np.ndarray:
        """Look up elements that must all be known.

        Parameters
        ----------
        elements : iterable
            Elements of the vocabulary, in any spelling.
        where : str
            What they are, for the error message.

        Returns
        -------
        ndarray of int, shape (n,)
            Their places in `vocabulary_`.

        """
        self._check_fitted()
        if isinstance(elements, str) or not isinstance(elements, Iterable):
            raise ValueError(f"{where} is {elements!r}; wanted a list of elements.")
        plain = [plain_element(e) for e in elements]
        found = [self._vocabulary.find(e) for e in plain]
        missing = dict.fromkeys(e for e, i in zip(plain, found, strict=True) if i is None)
        if missing:
            unknown = [UnknownElement(e, self._vocabulary.suggest(e)) for e in missing]
            raise ValueError(f"{where}: not in the vocabulary of {len(self.vocabulary_)}: {listed(unknown)}.")
        return np.array(found, dtype=np.int64)

    # ----------------------------------------------------------------------------------------------------- state

    def get_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what was learned, as data for a model folder.

        Returns
        -------
        tensors : dict of str to Tensor
            Arrays and weights.
        facts : dict of str to object
            Strings, numbers and lists of these.

        """
        self._check_fitted()
        odd = [token for token in self.vocabulary_ if not isinstance(token, str | int | float | bool)]
        if odd:
            raise ValueError(
                f"the vocabulary holds {odd[0]!r}, a {type(odd[0]).__name__}: a model folder keeps strings and numbers."
            )
        return state.learned(self)

    def set_state(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Take over what `get_state` returned; the parameters of both expanders must be the same.

        Parameters
        ----------
        tensors, facts : dict
            As returned by `get_state`. What does not fit together is a ValueError.

        Returns
        -------
        self

        """
        state.restore(self, tensors, facts)
        self._after_load()
        return self

    def _after_load(self) -> None:
        """Rebuild what follows from the learned attributes."""
        if hasattr(self, "vocabulary_"):
            self._vocabulary = Vocabulary(self.vocabulary_)

    def __getstate__(self) -> dict[str, Any]:
        # Attributes that begin with _ follow from the rest; the version is scikit-learn's.
        kept = super().__getstate__()
        return {name: value for name, value in kept.items() if not name.startswith("_") or name == "_sklearn_version"}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        super().__setstate__(kept)
        self._after_load()

    def _check_fitted(self) -> None:
        if not hasattr(self, "vocabulary_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first.")

    def _known(self, query: Any, where: str, warn: bool = True) -> np.ndarray:
        """Ascending ids without repetitions (a sum in floating point depends on the order); unknown ones are named."""
        members, unknown = self.parse(query)
        if unknown and warn:
            warnings.warn(
                f"{where}: skipped what is not in the vocabulary of {len(self.vocabulary_)}: {listed(unknown)}.",
                UnknownElementWarning,
                stacklevel=4,
            )
        return np.unique(np.array([self._vocabulary.ids[m] for m in members], dtype=np.int64))

    def _members(self, query: Any, where: str) -> Members:
        """Ids of the vocabulary, or rows of features."""
        self._check_fitted()
        if is_rows(query):
            rows = self._rows(query, where)
            self._check_some(rows.shape[0], where)
            return rows
        query = query if isinstance(query, str | list) or not isinstance(query, Iterable) else list(query)
        ids = self._known(query, where, warn=False)
        if not len(ids) and len(query):
            raise ValueError(
                f"{where}: none of its members is in the vocabulary of {len(self.vocabulary_)}: "
                f"{listed(self.parse(query).unknown)}."
            )
        self._check_some(len(ids), where)
        return self._known(query, where) if len(ids) < len(query) else ids

    def _check_some(self, count: int, where: str) -> None:
        if count == 0 and not self._answers_empty():
            raise ValueError(f"{where} is empty: wanted at least one member.")

    def _rows(self, rows: Any, where: str) -> Rows:
        if self.n_features_in_ == 0:
            raise ValueError(
                f"{where} is given as rows of features, but this {type(self).__name__} was fitted on tokens without "
                "features: give `items` with features to fit."
            )
        rows = as_rows(rows, where)
        if rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"{where}: rows of {rows.shape[1]} features were given, but the items have {self.n_features_in_}."
            )
        return rows

    def _z(self, z: Any, count: int) -> np.ndarray | None:
        if (z is None) != (self.n_context_ == 0):
            wanted = f"z of {self.n_context_} numbers" if self.n_context_ else "no z"
            raise ValueError(f"this {type(self).__name__} was fitted with {wanted}; z was {'not ' * (z is None)}given.")
        return None if z is None else read_z(z, count, "the query", self.n_context_)
