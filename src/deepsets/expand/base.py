"""The base class of all expanders: fitting, queries, candidates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from ..sets import Sets
from .input import is_rows, read_items, read_sets, read_z
from .lookup import ElementLookup, Members
from .ranking import Candidate, Explanation, less_like, relative, top_k
from .vocabulary import Vocabulary


class BaseExpander(ElementLookup):
    """From a few members of a set to more like them; the interface of all expanders.

    Elements are hashable tokens, listed in `vocabulary_`, or rows of features, or both. A query is a set: order and
    repetition do not matter. Strings are found regardless of capitals, accents, underscores and hyphens; members that
    are not known are skipped with an `UnknownElementWarning` that names them.

    Subclasses implement `_fit` and `_scores`, in ids of the vocabulary; those that can score rows of features
    implement `_score_rows` too. Learned attributes end with an underscore: arrays, sparse matrices, numbers, strings,
    lists of these, or a `network_` that `new_network` builds; they are saved and loaded by the base class.

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

    _needs_sets: ClassVar[bool] = True

    # ------------------------------------------------------------------------------------------- for subclasses

    def _fit(self, sets: Sets, z: np.ndarray | None, validation: tuple[Sets, np.ndarray | None] | None) -> None:
        """Learn from sets of ids without repetitions; `vocabulary_` and `features_` are set. z: (B, Z)."""
        raise NotImplementedError

    def _scores(self, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
        """Arrays of ascending ids, z (Q, Z) or None -> (Q, V): the score of every element, or -inf."""
        raise NotImplementedError

    def _score_rows(self, queries: list[Members], candidates: Members, z: np.ndarray | None) -> np.ndarray:
        """Queries and candidates as ids or as rows of features -> (Q, C)."""
        raise ValueError(f"this {type(self).__name__} scores its vocabulary only, not rows of features.")

    def _score_ids(self, queries: list[np.ndarray], ids: np.ndarray, z: np.ndarray | None) -> np.ndarray:
        """Scores of some elements, (Q, C); subclasses may know a cheaper way."""
        return self._scores(queries, z)[:, ids]

    def _member_fits(self, others: list[Members], members: Members, z: np.ndarray | None) -> np.ndarray:
        """How well member n goes with `others[n]`, (n,)."""
        return (self._score_ids if members.ndim == 1 else self._score_rows)(others, members, z).diagonal().copy()

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
            Sets that are not trained on, for early stopping.

        Returns
        -------
        self

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
        self._vocabulary = Vocabulary(self.vocabulary_)
        z = None if z is None else read_z(z, len(ids), "fit")
        self.n_context_ = 0 if z is None else z.shape[1]
        if z is not None and not self.accepts_z:
            raise ValueError(f"a {type(self).__name__} is not conditioned on z, but z was given.")
        held: tuple[Sets, np.ndarray | None] | None = None
        if validation is not None:
            held_sets, held_z = validation if z is not None else (validation, None)
            held_ids, _ = read_sets(held_sets, self.vocabulary_, True)
            held = held_ids, None if held_z is None else read_z(held_z, len(held_ids), "validation", self.n_context_)
        self._fit(ids, z, held)
        return self

    # --------------------------------------------------------------------------------------------------- queries

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
            raise ValueError(
                f"no candidate is left: the query and `exclude` hold all {len(allowed)} elements of the vocabulary."
            )
        scores = self._against(self._all([members], self._z(z, 1))[0], not_like, z)
        if members.ndim == 1:
            scores = self.filter_scores(members, scores)
        return [Candidate(self.vocabulary_[i], float(scores[i])) for i in top_k(scores, k, allowed)]

    def score(self, query: Any, candidates: Any = None, z: Any = None) -> np.ndarray:
        """Score candidates for one query.

        Parameters
        ----------
        query : list, str or matrix
            As for `expand`.
        candidates : list or matrix, optional
            Elements, or rows of features (C, D), which need not have been known when the expander was fitted; by
            default the whole vocabulary. Members of the query are scored like all others.
        z : array-like, optional
            What is known about the set.

        Returns
        -------
        ndarray of shape (C,)

        """
        members, context = self._members(query, "the query"), self._z(z, 1)
        if candidates is None:
            return self._all([members], context)[0]
        if is_rows(candidates):
            return self._score_rows([members], self._rows(candidates, "the candidates"), context)[0]
        wanted = self.ids(candidates, "the candidates")
        return (self._score_ids if members.ndim == 1 else self._score_rows)([members], wanted, context)[0]

    def scores(self, queries: Iterable[Any] | Sets, z: Any = None) -> np.ndarray:
        """Score the whole vocabulary for many queries.

        Parameters
        ----------
        queries : iterable of queries, or Sets
            Lists of elements, or `Sets` of ids.
        z : array-like of shape (Q, Z), optional
            What is known about each set.

        Returns
        -------
        ndarray of shape (Q, V)

        """
        self._check_fitted()
        if isinstance(queries, Sets):
            lists = read_sets(queries, self.vocabulary_, True)[0].to_list()
            asked: list[Members] = [np.sort(ids.numpy()) for ids in lists]
            for q, ids in enumerate(asked):
                self._check_some(len(ids), f"query {q}")
        else:
            asked = [self._members(query, f"query {q}") for q, query in enumerate(queries)]
        return self._all(asked, self._z(z, len(asked)))

    def fits(self, query: Any, z: Any = None) -> np.ndarray:
        """Score each member against the others; the odd member has the lowest score.

        Parameters
        ----------
        query : list or matrix
            Members, all known; one that is given twice counts once and has the same score in both places.
        z : array-like, optional
            What is known about the set.

        Returns
        -------
        ndarray of shape (n,)

        """
        self._check_fitted()
        given = None if is_rows(query) else self.ids(query, "the query")
        members = self._rows(query, "the query") if given is None else np.unique(given)
        n = members.shape[0]
        if n < 2:
            raise ValueError("a member is compared with the others: wanted at least 2 different members.")
        others = [members[np.arange(n) != m] for m in range(n)]
        context = self._z(z, 1)
        found = self._member_fits(others, members, None if context is None else np.repeat(context, n, 0))
        return found if given is None else found[np.searchsorted(members, given)]

    def relative_fits(self, query: Any, z: Any = None) -> list[Candidate]:
        """Return each member with its score against the others, from 0 (median of the vocabulary) to 1 (the best)."""
        ids = self.ids(query)
        context = self._z(z, 1)
        others = [np.unique(ids[ids != i]) for i in ids]
        rows = self._all(others, None if context is None else np.repeat(context, len(ids), 0))
        fits = [relative(np.delete(row, ids), float(row[i])) for i, row in zip(ids, rows, strict=True)]
        return [Candidate(self.vocabulary_[i], fit) for i, fit in zip(ids, fits, strict=True)]

    def filter_scores(self, members: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Set elements that are no useful answers to -inf, given the ids of the query and all scores, (V,) -> (V,)."""
        return scores

    def explain(self, query: Any, element: Any, z: Any = None) -> Explanation:
        """Tell which members of the query an element goes with.

        Parameters
        ----------
        query : list or str
            Members of a set.
        element : object
            An element of the vocabulary.
        z : array-like, optional
            What is known about the set.

        Returns
        -------
        Explanation

        """
        members = self._members(query, "the query")
        wanted = int(self.ids([element], "the element")[0])
        context = self._z(z, 1)
        rows = self._all([m[None] for m in members], None if context is None else np.repeat(context, len(members), 0))
        found = []
        for m, row in zip(members.tolist(), rows, strict=True):
            others = np.delete(row, [m, wanted])
            found.append(Candidate(self.vocabulary_[m], relative(others, float(row[wanted]))))
        found.sort(key=lambda member: -member.score)
        return Explanation(self.vocabulary_[wanted], found, self._common_sets(members, wanted))

    def _common_sets(self, members: np.ndarray, element: int) -> list[str]:
        return []

    def _all(self, queries: list[Members], z: np.ndarray | None) -> np.ndarray:
        if all(query.ndim == 1 for query in queries):
            return self._scores(queries, z)
        return self._score_rows(queries, np.arange(len(self.vocabulary_)), z)

    def _against(self, scores: np.ndarray, not_like: Any, z: Any) -> np.ndarray:
        if is_rows(not_like):
            negative: Members = self._rows(not_like, "`not_like`")
        else:
            negative = self._known(not_like, "`not_like`", warn=False)
        if not negative.shape[0]:
            return scores
        return less_like(scores, self._all([negative], self._z(z, 1))[0])
