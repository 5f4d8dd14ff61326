"""What speaks for a candidate, given a query: common sets, near vectors, and both at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

NEIGHBOURS = 20
_TINY = 1e-5


class Look(NamedTuple):
    """A query, and what each set says to it. query: (n,) ids. holds: (T, n) whether set t holds each member.
    weights: (T, 5) what set t weighs, in five ways. cosines: (V,) of all elements to the query.
    """

    query: np.ndarray
    without: int | None
    holds: np.ndarray
    weights: np.ndarray
    cosines: np.ndarray


class Evidence:
    """`evidence(look, candidates)` -> (C, F): the features of pairs of a query and a candidate.

    >>> members = sp.csr_array(np.array([[1, 1, 1, 0], [0, 0, 1, 1]], dtype=np.float32))  # two sets of four elements
    >>> evidence = Evidence(members, np.zeros((4, 1)), np.eye(4, dtype=np.float32))
    >>> evidence(evidence.look(np.array([0, 1])), np.array([2, 3])).shape
    (2, 39)

    members: (T, V), 1 where element v stands in set t. traits: (V, K) what is known of elements by themselves.
    table: (V, D) vectors of length 1, or 0 for elements without.

    All that is taken from sets is a sum over sets, of a weight of set t that the query gives, times whether the
    candidate is in t. `look(query, without)` names a set whose weight is 0 and that no count knows: so one can learn
    from that set itself. Nothing depends on the order of the query.
    """

    def __init__(self, members: sp.csr_array, traits: np.ndarray, table: np.ndarray) -> None:
        self.members, self.traits, self.table = members, traits, table
        self.of = sp.csr_array(members.T)  # (V, T)
        self.count = np.asarray(self.of.sum(1)).ravel()
        self.known = np.linalg.norm(table, axis=1) > 0
        self.centres = unit(np.asarray(members @ table))  # (T, D)
        self.size = float(members.sum() / members.shape[0])

    def look(self, query: np.ndarray, without: int | None = None) -> Look:
        """What all candidates share, for one query."""
        holds = self.of[query].toarray().T
        direction = unit(self.table[query].sum(0))
        nearness = self.centres @ direction
        if without is not None:
            holds[without], nearness[without] = 0, -np.inf
        n = holds.sum(1)
        share = self.size / len(self.count)
        bayes = np.log1p(n / (2 * share)) - np.log1p((len(query) - n) / (2 - 2 * share)) + np.log1p(len(query) / 2)
        soft = [_softmax(nearness / 0.05), _softmax(nearness / 0.1), _softmax(nearness / 0.1 + 1.5 * n)]
        weights = np.stack([n, np.where(n > 0, bayes, 0), *soft], 1, dtype=np.float32)
        return Look(query, without, holds, weights, self.table @ direction)

    def first(self, look: Look) -> np.ndarray:
        """(V,) a quick score of all elements, by which the learner chooses what to look at."""
        return np.log(self.of @ look.weights[:, 4] + 1e-4) + 8 * look.cosines

    def __call__(self, look: Look, candidates: np.ndarray | None = None) -> np.ndarray:
        """The evidence for some candidates, or for all elements: (C, F)."""
        chosen = slice(None) if candidates is None else candidates
        of, table, count = (x[chosen] for x in (self.of, self.table, self.count))
        query, holds, weights = look.query, look.holds, look.weights
        asked = self.count[query]
        if look.without is not None:
            left_out = self.members[[look.without]].toarray()[0]
            count, asked = count - left_out[chosen], asked - left_out[query]
        sets = self.members.shape[0]
        both = of @ holds  # (C, n) how many sets hold the candidate and the member
        surprise = np.log((both + 0.1) / (np.outer(count + 0.5, asked + 0.5) / sets + 0.1))
        summed = of @ weights
        columns = [
            np.log1p(summed[:, 0]),
            summed[:, 1],
            summed[:, 1] / (count + 1),
            np.log(summed[:, 2:] + _TINY),
            np.log(summed[:, 2:] + _TINY / 10) - np.log((count + 0.3) / sets)[:, None],
            _spread(both / (asked + 1)),
            _spread(surprise),
            (both > 0).mean(1),
            _spread(table @ self.table[query].T),
            look.cosines[chosen],
            table @ self._further(look),
            np.log1p(count),
            count == 0,
            self.known[chosen],
            self.traits[chosen],
        ]
        told = self._of_query(query, asked, weights)
        wide = np.broadcast_to(told, (len(count), len(told)))
        return np.column_stack([*columns, wide]).astype(np.float32)

    def _further(self, look: Look) -> np.ndarray:
        """The direction of the query, drawn halfway to the elements that are nearest to it."""
        nearest = np.argpartition(-look.cosines, min(NEIGHBOURS, len(self.table) - 1))[:NEIGHBOURS]
        return unit(unit(self.table[look.query].sum(0)) + 0.5 * unit(self.table[nearest].sum(0)))

    def _of_query(self, query: np.ndarray, asked: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """What the query itself is like: how frequent its members are, how near to each other."""
        logs, soft, n = np.log1p(asked), weights[:, 2], len(query)
        among = self.table[query] @ self.table[query].T
        together = (among.sum() - np.trace(among)) / max(n * (n - 1), 1)
        surprise = -(soft * np.log(soft + 1e-9)).sum()
        frequent = [logs.mean(), logs.min(), logs.max(), (asked == 0).mean()]
        traits = self.traits[query]
        nearby = [soft.max(), surprise, together, self.known[query].mean()]
        return np.array([*frequent, weights[:, 0].max(), *nearby, *traits.mean(0), *traits.max(0)])


def _spread(values: np.ndarray) -> np.ndarray:
    """(C, n) -> (C, 4): mean, largest, second largest and least over the query."""
    ordered = np.sort(values, 1)
    return np.column_stack([values.mean(1), ordered[:, -1], ordered[:, -2:][:, 0], ordered[:, 0]])


def _softmax(x: np.ndarray) -> np.ndarray:
    top = x.max()
    weights = np.exp(x - (top if np.isfinite(top) else 0))
    return weights / max(weights.sum(), 1e-30)


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1; rows of 0 stay."""
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), np.finfo(np.float32).tiny)


def whiten(vectors: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Vectors without their mean and first principal direction, the others brought nearer to each other in size.

    (V, D), (V,) -> (V, D - 1) rows of length 1, and 0 where nothing is known.
    """
    if not known.any() or vectors.shape[1] < 2:
        return np.where(known[:, None], unit(vectors), 0).astype(np.float32)
    centred = vectors - vectors[known].mean(0)
    size, directions = np.linalg.eigh(centred[known].T.astype(np.float64) @ centred[known])  # by rising variance
    scaled = centred @ (directions[:, :-1] / np.maximum(size[:-1], size[-1] * 1e-9) ** 0.35)
    return np.where(known[:, None], unit(scaled), 0).astype(np.float32)
