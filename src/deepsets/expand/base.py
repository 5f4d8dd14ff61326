"""What all expanders share: elements to ids and back, checks, the best of all candidates (Deep Sets, section 4.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from ..sets import Sets
from .input import as_rows, is_rows, near, read_items, read_sets, read_z
from .topk import top

Rows: TypeAlias = "np.ndarray | sp.csr_array"  # (n, D) features
Query: TypeAlias = "np.ndarray | sp.csr_array"  # (n,) ids of the vocabulary, or (n, D) features


class Candidate(NamedTuple):
    """An element and its score; the higher, the better it goes with the query."""

    element: Any
    score: float


class Expander(BaseEstimator):
    """From a few members of a set to more like them.

    >>> from deepsets.expand import BayesianSets
    >>> sets = [["lion", "tiger", "leopard"], ["tiger", "leopard", "puma"], ["oak", "elm", "birch"]]
    >>> expander = BayesianSets().fit(sets)
    >>> [candidate.element for candidate in expander.expand(["lion", "tiger"], k=2)]
    ['leopard', 'puma']
    >>> int(expander.fits(["lion", "oak", "tiger"]).argmin())  # the odd member
    1

    Elements are any hashable tokens, known to `vocabulary_`, or rows with features, or both. A query is a set: order
    and repetition do not matter. Subclasses write `_fit` and `_scores`, in ids of the vocabulary; those that can score
    rows that were not there when they were fitted write `_score_rows` too. What they learn they keep in attributes
    that end with `_`: arrays, numbers, strings, lists of these, or a `network_`; these are saved and loaded for them.
    """

    _takes_z: ClassVar[bool] = False
    _needs_sets: ClassVar[bool] = True
    _not_saved: ClassVar[tuple[str, ...]] = ()  # parameters that went into what was learnt

    vocabulary_: list[Any]
    features_: Rows | None  # (V, D); subclasses that keep them in another form may set it to None
    n_features_in_: int  # 0 where elements are tokens only
    n_context_: int

    # ------------------------------------------------------------------------------------------- for subclasses

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: tuple[Sets, np.ndarray | None] | None) -> None:
        """Learns from sets of ids, without repetitions; `vocabulary_` and `features_` are there. z: (B, Z)."""
        raise NotImplementedError

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        """Arrays of rising ids, z (Q, Z) or None -> (Q, V): the score of every element of the vocabulary, or -inf."""
        raise NotImplementedError

    def _score_rows(self, queries: list[Query], candidates: Query, z: np.ndarray | None) -> np.ndarray:
        """Queries and candidates as ids or as rows of features -> (Q, C)."""
        raise ValueError(f"this {type(self).__name__} knows its vocabulary only, it cannot score rows of features.")

    def _pick(self, queries: list[np.ndarray], ids: np.ndarray, z: np.ndarray | None) -> np.ndarray:
        """The scores of some elements, (Q, C); cheaper ways than this one may be known."""
        return self._scores(queries, z)[:, ids]

    def _belongs(self, others: list[Query], ids: Query, z: np.ndarray | None) -> np.ndarray:
        """How well member n goes with `others[n]`, (n,)."""
        return (self._pick if ids.ndim == 1 else self._score_rows)(others, ids, z).diagonal().copy()

    def _answers_empty(self) -> bool:
        """Whether a query without members asks something; with z it may."""
        return False

    def _default_vocabulary(self) -> list[Any]:
        """The elements, where neither sets nor items name any."""
        return []

    # --------------------------------------------------------------------------------------------------- fitting

    def fit(
        self,
        sets: Iterable[Iterable[Any]] | Sets = (),
        *,
        items: Any = None,
        vocabulary: Sequence[Any] | None = None,
        z: Any = None,
        validation: Any = None,
    ) -> Self:
        """Learns the vocabulary, and what makes a set.

        sets:  lists of elements, or `Sets` of ids (then `vocabulary` or `items` says what they stand for).
        items: elements beside those of the sets: a list; or with features a dict from element to row, a pair
            (elements, matrix (V, D)), or a matrix alone, whose rows are then called 0, 1, …
        vocabulary: all elements, in order; by default those of `items`, then those of the sets as they come.
        z:     (B, Z), what is known of each set, where the expander is conditioned.
        validation: sets that are not trained on, for early stopping; with z a pair (sets, z).
        """
        names, features = read_items(items)
        if vocabulary is not None and names is not None:
            raise ValueError("give the elements as `vocabulary` or as `items`, not both.")
        fixed = vocabulary is not None or features is not None or isinstance(sets, Sets)
        names = list(vocabulary) if vocabulary is not None else names
        ids, self.vocabulary_ = read_sets(sets, names or [], fixed)
        self.vocabulary_ = self.vocabulary_ or self._default_vocabulary()
        if not self.vocabulary_:
            raise ValueError("there is nothing to learn from: no set and no item holds an element.")
        if self._needs_sets and ids.total == 0:
            raise ValueError(f"a {type(self).__name__} learns from sets: found none with an element in it.")
        self.features_, self.n_features_in_ = features, 0 if features is None else int(features.shape[1])
        self._ids = {element: i for i, element in enumerate(self.vocabulary_)}
        z = None if z is None else read_z(z, len(ids), "fit")
        self.n_context_ = 0 if z is None else z.shape[1]
        if z is not None and not self._takes_z:
            raise ValueError(f"a {type(self).__name__} is not conditioned on anything; z was given.")
        held: tuple[Sets, np.ndarray | None] | None = None
        if validation is not None:
            held_sets, held_z = validation if z is not None else (validation, None)
            held_ids, _ = read_sets(held_sets, self.vocabulary_, True)
            held = held_ids, None if held_z is None else read_z(held_z, len(held_ids), "validation", self.n_context_)
        self._fit(ids, z, held)
        return self

    # ---------------------------------------------------------------------------------------------------- asking

    def expand(self, query: Any, k: int = 10, *, z: Any = None, exclude: Iterable[Any] = ()) -> list[Candidate]:
        """The k elements that go best with the query, best first, ties in the order of the vocabulary.

        Members of the query, and of `exclude`, are no candidates. Where fewer than k are left, all that are left.
        """
        ids = self._query(query, "the query")
        if k < 1:
            raise ValueError(f"k must be at least 1, found {k}.")
        left = np.ones(len(self.vocabulary_), dtype=bool)
        if ids.ndim == 1:
            left[ids] = False
        left[[self._ids[e] for e in exclude if e in self._ids]] = False  # what is not known is no candidate anyway
        if not left.any():
            raise ValueError(
                f"no candidate is left: the query and `exclude` hold all {len(left)} elements of the vocabulary."
            )
        scores = self._all([ids], self._z(z, 1))[0]
        return [Candidate(self.vocabulary_[i], float(scores[i])) for i in top(scores, k, left)]

    def score(self, query: Any, candidates: Any = None, z: Any = None) -> np.ndarray:
        """(C,) how well each candidate goes with the query.

        candidates: elements, or rows of features (C, D), which need not have been there when the expander was fitted;
            by default the whole vocabulary, in its order. Members of the query are scored like all others.
        """
        ids, rows = self._query(query, "the query"), self._z(z, 1)
        if candidates is None:
            return self._all([ids], rows)[0]
        if is_rows(candidates):
            return self._score_rows([ids], self._rows(candidates, "the candidates"), rows)[0]
        wanted = self._lookup(candidates, "the candidates")
        return (self._pick if ids.ndim == 1 else self._score_rows)([ids], wanted, rows)[0]

    def scores(self, queries: Iterable[Any] | Sets, z: Any = None) -> np.ndarray:
        """(Q, V) the score of every element of the vocabulary for many queries: lists of elements, or `Sets` of ids."""
        self._check_fitted()
        if isinstance(queries, Sets):
            asked: list[Query] = self._id_queries(queries)
        else:
            asked = [self._query(query, f"query {q}") for q, query in enumerate(queries)]
        return self._all(asked, self._z(z, len(asked)))

    def fits(self, query: Any, z: Any = None) -> np.ndarray:
        """(n,) how well each member goes with the others, leaving it out; the odd member has the lowest.

        A member that is given twice counts once, and has the same answer in both places.
        """
        ids = self._query(query, "the query")
        if ids.shape[0] < 2:
            raise ValueError("how well a member fits is seen against the others: wanted at least 2 different members.")
        n = ids.shape[0]
        others = [ids[np.arange(n) != m] for m in range(n)]
        z = self._z(z, 1)
        z = None if z is None else np.repeat(z, n, 0)
        found = self._belongs(others, ids, z)
        if ids.ndim > 1:
            return found
        return found[np.searchsorted(ids, self._lookup(query, "the query"))]

    # ---------------------------------------------------------------------------------------------------- checks

    def _all(self, queries: list[Query], z: np.ndarray | None) -> np.ndarray:
        if all(query.ndim == 1 for query in queries):
            return self._scores(queries, z)
        return self._score_rows(queries, np.arange(len(self.vocabulary_)), z)

    def _check_fitted(self) -> None:
        if not hasattr(self, "vocabulary_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first.")

    def _query(self, query: Any, where: str) -> Query:
        """Ids in their order, without repetitions; or rows."""
        self._check_fitted()
        if is_rows(query):
            ids = self._rows(query, where)
        else:
            given = self._lookup(query, where)
            if len(given) > len(self.vocabulary_):
                raise ValueError(f"{where} has {len(given)} members, but the vocabulary only {len(self.vocabulary_)}.")
            ids = np.unique(given)  # in one order: a sum in floating point would notice another one
        self._check_some(ids.shape[0], where)
        return ids

    def _check_some(self, count: int, where: str) -> None:
        if count == 0 and not self._answers_empty():
            raise ValueError(f"{where} is empty: wanted at least one member to look for others like it.")

    def _id_queries(self, queries: Sets) -> list[np.ndarray]:
        lists = read_sets(queries, self.vocabulary_, True)[0].to_list()
        for q, ids in enumerate(lists):
            self._check_some(len(ids), f"query {q}")
        return [np.sort(ids.numpy()) for ids in lists]

    def _lookup(self, elements: Any, where: str) -> np.ndarray:
        if isinstance(elements, str) or not isinstance(elements, Iterable):
            raise ValueError(f"{where} is {elements!r}; wanted a list of elements.")
        elements = [e.item() if hasattr(e, "item") else e for e in elements]
        try:
            unknown = list(dict.fromkeys(e for e in elements if e not in self._ids))
        except TypeError:
            raise ValueError(
                f"{where} holds members that are no tokens ({elements[0]!r}, …): give rows of features as an array."
            ) from None
        if unknown:
            listed = "; ".join(f"{e!r}{near(e, self.vocabulary_)}" for e in unknown[:5])
            more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
            raise ValueError(f"{where} holds what is not in the vocabulary of {len(self.vocabulary_)}: {listed}{more}.")
        return np.array([self._ids[e] for e in elements], dtype=np.int64)

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

    def __getstate__(self) -> dict[str, Any]:
        # What begins with _ follows from the rest; the version is scikit-learn's.
        state = super().__getstate__()
        return {name: value for name, value in state.items() if not name.startswith("_") or name == "_sklearn_version"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._after_load()

    def _after_load(self) -> None:
        """Makes what follows from the learnt attributes."""
        if hasattr(self, "vocabulary_"):
            self._ids = {element: i for i, element in enumerate(self.vocabulary_)}
