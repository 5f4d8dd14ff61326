"""The base class of all expanders: fitting, queries, candidates, the learned state."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from torch import Tensor

from ..sets import Sets
from . import state
from .metrics import Candidate, Explanation, less_like, relative, top_k
from .vocabulary import (
    ParsedQuery,
    UnknownElementWarning,
    Vocabulary,
    as_rows,
    is_rows,
    listed,
    plain_element,
    read_items,
    read_sets,
    read_z,
)

Rows: TypeAlias = "np.ndarray | sp.csr_array"  # (n, D) features
Members: TypeAlias = "np.ndarray | sp.csr_array"  # (n,) ids of the vocabulary, or (n, D) features
Validation: TypeAlias = "tuple[Sets, np.ndarray | None] | None"


class BaseExpander(BaseEstimator):
    """From a few members of a set to more like them; the interface of all expanders.

    Elements are hashable tokens, listed in `vocabulary_`, or rows of features, or both. Order and repetition in a query
    do not matter, nor capitals, accents and hyphens. Unknown members are skipped with an `UnknownElementWarning`.

    Subclasses implement `_fit` and `_scores`, and `_score_some` if they can score rows of features. Learned attributes
    end with an underscore and are saved: arrays, sparse matrices, plain values, or a `network_` of `new_network`.

    Attributes
    ----------
    vocabulary_ : list
        All elements, in the order of ids.
    n_features_in_ : int
        Number of features of an element; 0 if elements are tokens only.
    n_context_ : int
        Width of z; 0 if the expander is not conditioned.

    Examples
    --------
    >>> from deepsets.expand import BayesianSets
    >>> sets = [["lion", "tiger", "leopard"], ["tiger", "leopard", "puma"], ["oak", "elm", "birch"]]
    >>> expander = BayesianSets().fit(sets)
    >>> [candidate.element for candidate in expander.expand(["lion", "tiger"], k=2)]
    ['leopard', 'puma']
    >>> int(expander.fits(["lion", "oak", "tiger"]).argmin())  # the odd member
    1

    """

    accepts_z: ClassVar[bool] = False
    # Shares of the vocabulary that do as well as an odd member, and better than a member that belongs: `odd_member`.
    odd_shares: ClassVar[tuple[float, float]] = (0.1, 1 / 3)
    not_saved: ClassVar[tuple[str, ...]] = ()  # parameters that are part of what was learned
    _needs_sets: ClassVar[bool] = True

    vocabulary_: list[Any]
    features_: Rows | None  # (V, D); subclasses that keep them in another form set it to None
    n_features_in_: int
    n_context_: int

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: Validation) -> None:
        """Learn from sets of ids without repetitions; `vocabulary_` and `features_` are set. z: (B, Z)."""
        raise NotImplementedError

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        """Ascending ids, z (Q, Z) or None -> (Q, V): the score of every element, or -inf."""
        raise NotImplementedError

    def _fit_scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        return self._scores(queries, z)  # to tell whether a member belongs: comparable between these queries

    def _best_scores(self, queries: list[Members], z: np.ndarray | None, best: int | None) -> np.ndarray:
        return self._all(queries, z)  # (Q, V); only those of the best have to be exact

    def _score_some(self, queries: list[Members], candidates: Members, z: np.ndarray | None) -> np.ndarray:
        """Queries and candidates as ids or as rows of features -> (Q, C); subclasses may know a cheaper way for ids."""
        if candidates.ndim > 1 or any(query.ndim > 1 for query in queries):
            raise ValueError(f"this {type(self).__name__} scores its vocabulary only, not rows of features.")
        return self._scores(queries, z)[:, candidates]

    def _member_fits(self, others: list[Members], members: Members, z: np.ndarray | None) -> np.ndarray:
        """How well member n goes with `others[n]`, (n,)."""
        return self._score_some(others, members, z).diagonal().copy()

    def _default_vocabulary(self) -> list[Any]:
        return []

    def _answers_empty(self) -> bool:
        return False

    def _common_sets(self, members: np.ndarray, element: int) -> list[str]:
        return []

    def filter_scores(self, members: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Set elements that are no useful answers to -inf, given the ids of the query and all scores, (V,) -> (V,)."""
        return scores

    def fit(
        self,
        sets: Iterable[Iterable[Any]] | Sets = (),
        *,
        items: Any = None,
        vocabulary: Sequence[Any] | None = None,
        z: Any = None,
        validation: Any = None,
    ) -> Self:
        """Learn the vocabulary and what belongs together.

        Parameters
        ----------
        sets : iterable of iterables, or Sets
            Lists of elements, or `Sets` of ids; then `vocabulary` or `items` names them.
        items : list, dict, tuple or matrix, optional
            Elements beside those of the sets: a list; or with features a dict from element to row, a pair
            (elements, matrix (V, D)), or a matrix alone, whose rows are then called 0, 1, …
        vocabulary : sequence, optional
            All elements, in order; by default those of `items`, then those of the sets as they come.
        z : array-like of shape (B, Z), optional
            What is known about each set, for expanders with `accepts_z`.
        validation : iterable of iterables, Sets, or pair (sets, z), optional
            Sets that are not trained on, for early stopping or the choice of weights.

        Returns
        -------
        self

        """
        names, features = read_items(items)
        if vocabulary is not None and names is not None:
            raise ValueError("give the elements as `vocabulary` or as `items`, not both.")
        fixed = vocabulary is not None or features is not None or isinstance(sets, Sets)
        names = list(vocabulary) if vocabulary is not None else names
        ids, known = read_sets(sets, names or [], fixed)
        self.vocabulary_ = known or self._default_vocabulary()
        if not self.vocabulary_:
            raise ValueError("there is nothing to learn from: no set and no item holds an element.")
        if self._needs_sets and ids.total == 0:
            raise ValueError(f"a {type(self).__name__} learns from sets: found none with an element in it.")
        self.features_, self.n_features_in_ = features, 0 if features is None else int(features.shape[1])
        self._vocabulary = Vocabulary(self.vocabulary_)
        z = None if z is None else read_z(z, len(ids), "fit")
        self.n_context_ = 0 if z is None else z.shape[1]
        if z is not None and not self.accepts_z:
            raise ValueError(f"a {type(self).__name__} is not conditioned on z, but z was given.")
        held: Validation = None
        if validation is not None:
            held_sets, held_z = validation if z is not None else (validation, None)
            held_ids, _ = read_sets(held_sets, self.vocabulary_, True)
            held = held_ids, None if held_z is None else read_z(held_z, len(held_ids), "validation", self.n_context_)
        self._fit(ids, z, held)
        return self

    def expand(
        self, query: Any, k: int = 10, *, z: Any = None, exclude: Iterable[Any] = (), not_like: Any = ()
    ) -> list[Candidate]:
        """Find the k elements that go best with the query.

        Parameters
        ----------
        query : list, str or matrix
            Members of a set: elements, text (see `parse`), or rows of features (n, D).
        k : int, default=10
            How many elements are wanted; where fewer are left, all that are left.
        z : array-like, optional
            What is known about the set, for an expander that was fitted with z.
        exclude : iterable, optional
            Elements that are not wanted.
        not_like : list or str, optional
            Negative examples: elements like these are moved down, and they are no candidates themselves.

        Returns
        -------
        list of Candidate
            Best first, ties in the order of the vocabulary. Members of the query are no candidates.

        """
        members = self._members(query, "the query")
        if k < 1:
            raise ValueError(f"k must be at least 1, found {k}.")
        allowed = np.ones(len(self.vocabulary_), dtype=bool)
        if members.ndim == 1:
            allowed[members] = False
        for given, where in ((exclude, "`exclude`"), (not_like, "`not_like`")):
            if not is_rows(given):
                allowed[self._known(given, where)] = False
        if not allowed.any():
            raise ValueError(f"no candidate is left: the query and `exclude` hold all {len(allowed)} elements.")
        negative = self._rows(not_like, "`not_like`") if is_rows(not_like) else self._known(not_like, "", warn=False)
        best = None if negative.shape[0] else k + int((~allowed).sum())
        scores = self._best_scores([members], self._z(z, 1), best)[0]
        if negative.shape[0]:
            scores = less_like(scores, self._all([negative], self._z(z, 1))[0])
        if members.ndim == 1:
            scores = self.filter_scores(members, scores)
        return [Candidate(self.vocabulary_[i], float(scores[i])) for i in top_k(scores, k, allowed)]

    def score(self, query: Any, candidates: Any = None, z: Any = None) -> np.ndarray:
        """Score candidates for one query, (C,); query and z are as for `expand`.

        Parameters
        ----------
        candidates : list or matrix, optional
            Elements, or rows of features (C, D), which need not have been known when the expander was fitted; by
            default the whole vocabulary. Members of the query are scored like all others.
        """
        members, context = self._members(query, "the query"), self._z(z, 1)
        if candidates is None:
            return self._all([members], context)[0]
        read = self._rows if is_rows(candidates) else self.ids
        return self._score_some([members], read(candidates, "the candidates"), context)[0]

    def scores(self, queries: Iterable[Any] | Sets, z: Any = None, best: int | None = None) -> np.ndarray:
        """Score the whole vocabulary for many queries, (Q, V).

        Parameters
        ----------
        queries : iterable of queries, or Sets
            Lists of elements, or `Sets` of ids.
        z : array-like of shape (Q, Z), optional
            What is known about each set.
        best : int, optional
            How many of the best elements of each query are wanted; the others may then have approximate scores, below
            those of the best. By default all scores are exact.
        """
        self._check_fitted()
        if isinstance(queries, Sets):
            lists = read_sets(queries, self.vocabulary_, True)[0].to_list()
            asked: list[Members] = [np.sort(ids.numpy()) for ids in lists]
            for q, ids in enumerate(asked):
                self._check_some(len(ids), f"query {q}")
        else:
            asked = [self._members(query, f"query {q}") for q, query in enumerate(queries)]
        return self._best_scores(asked, self._z(z, len(asked)), best)

    def fits(self, query: Any, z: Any = None) -> np.ndarray:
        """Score each member against the others, (n,); the odd member has the lowest score.

        Parameters
        ----------
        query : list or matrix
            Members, all known; one that is given twice counts once and has the same score in both places.
        z : array-like, optional
            As for `expand`.
        """
        self._check_fitted()
        given = None if is_rows(query) else self.ids(query, "the query")
        members = self._rows(query, "the query") if given is None else np.unique(given)
        if (n := members.shape[0]) < 2:
            raise ValueError("a member is compared with the others: wanted at least 2 different members.")
        others = [members[np.arange(n) != m] for m in range(n)]
        found = self._member_fits(others, members, _repeat(self._z(z, 1), n))
        return found if given is None else found[np.searchsorted(members, given)]

    def relative_fits(self, query: Any, z: Any = None) -> list[Candidate]:
        """Return each member with its score against the others, from 0 (median of the vocabulary) to 1 (the best)."""
        ids = self.ids(query)
        rows = self._all([np.unique(ids[ids != i]) for i in ids], _repeat(self._z(z, 1), len(ids)))
        fits = [relative(np.delete(row, ids), float(row[i])) for i, row in zip(ids, rows, strict=True)]
        return list(map(Candidate, [self.vocabulary_[i] for i in ids], fits))

    def explain(self, query: Any, element: Any, z: Any = None) -> Explanation:
        """Tell which members of the query an element goes with; see `explain_each`."""
        return self.explain_each(query, [element], z)[0]

    def explain_each(self, query: Any, elements: Iterable[Any], z: Any = None) -> list[Explanation]:
        """Tell which members of the query each of some elements goes with; query and z are as for `expand`."""
        members, ids = self._members(query, "the query"), self.ids(elements, "the element").tolist()
        rows = self._all([m[None] for m in members], _repeat(self._z(z, 1), len(members)))
        words, out = self.vocabulary_, []
        for i in ids:
            each = [relative(np.delete(row, [m, i]), float(row[i])) for m, row in zip(members, rows, strict=True)]
            found = sorted(map(Candidate, [words[m] for m in members], each), key=lambda member: -member.score)
            out.append(Explanation(words[i], found, self._common_sets(members, i)))
        return out

    def _all(self, queries: list[Members], z: np.ndarray | None) -> np.ndarray:
        if all(query.ndim == 1 for query in queries):
            return self._scores(queries, z)
        return self._score_some(queries, np.arange(len(self.vocabulary_)), z)

    def parse(self, query: Any) -> ParsedQuery:
        """Read a query as people write it: known elements, and unknown ones with suggestions; see `Vocabulary`."""
        self._check_fitted()
        return self._vocabulary.parse(query)

    def find(self, element: Any) -> int | None:
        """Return the place of an element in `vocabulary_`, or None if it is not known in any spelling."""
        self._check_fitted()
        return self._vocabulary.find(element)

    def ids(self, elements: Any, where: str = "the query") -> np.ndarray:
        """Look up elements that must all be known: places in `vocabulary_`; `where` is for the error message."""
        self._check_fitted()
        if isinstance(elements, str) or not isinstance(elements, Iterable):
            raise ValueError(f"{where} is {elements!r}; wanted a list of elements.")
        plain = [plain_element(e) for e in elements]
        found = [self._vocabulary.find(e) for e in plain]
        missing = dict.fromkeys(e for e, i in zip(plain, found, strict=True) if i is None)
        if missing:
            unknown = listed([self._vocabulary.unknown(e) for e in missing])
            raise ValueError(f"{where}: not in the vocabulary of {len(self.vocabulary_)}: {unknown}.")
        return np.array(found, dtype=np.int64)

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
            unknown = listed(self.parse(query).unknown)
            raise ValueError(
                f"{where}: none of its members is in the vocabulary of {len(self.vocabulary_)}: {unknown}."
            )
        self._check_some(len(ids), where)
        return self._known(query, where) if len(ids) < len(query) else ids

    def _rows(self, rows: Any, where: str) -> Rows:
        if self.n_features_in_ == 0:
            raise ValueError(
                f"{where} is given as rows of features, but this {type(self).__name__} was fitted on tokens without "
                "features: give `items` with features to fit."
            )
        rows = as_rows(rows, where)
        if rows.shape[1] != (width := self.n_features_in_):
            raise ValueError(f"{where}: rows of {rows.shape[1]} features were given, but the items have {width}.")
        return rows

    def _z(self, z: Any, count: int) -> np.ndarray | None:
        if (z is None) != (self.n_context_ == 0):
            wanted = f"z of {self.n_context_} numbers" if self.n_context_ else "no z"
            raise ValueError(f"this {type(self).__name__} was fitted with {wanted}; z was {'not ' * (z is None)}given.")
        return None if z is None else read_z(z, count, "the query", self.n_context_)

    def _check_some(self, count: int, where: str) -> None:
        if count == 0 and not self._answers_empty():
            raise ValueError(f"{where} is empty: wanted at least one member.")

    def _check_fitted(self) -> None:
        if not hasattr(self, "vocabulary_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first.")

    def get_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what was learned, as data for a model folder: tensors, and strings, numbers and lists of these."""
        self._check_fitted()
        return state.learned(self)

    def set_state(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Take over what `get_state` returned; what does not fit together is a ValueError."""
        state.restore(self, tensors, facts)
        self._after_load()
        return self

    def _after_load(self) -> None:
        """Rebuild what follows from the learned attributes."""
        if hasattr(self, "vocabulary_"):
            self._vocabulary = Vocabulary(self.vocabulary_)

    def __getstate__(self) -> dict[str, Any]:
        # Attributes that begin with _ follow from the rest; the version is scikit-learn's.
        return {n: v for n, v in super().__getstate__().items() if not n.startswith("_") or n == "_sklearn_version"}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        super().__setstate__(kept)
        self._after_load()


def _repeat(z: Any, count: int) -> Any:
    return None if z is None else np.repeat(z, count, 0)
