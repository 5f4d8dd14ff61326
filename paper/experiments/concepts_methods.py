"""Concept sets and how expanders are asked about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from deepsets.expand import BaseExpander
from deepsets.expand.metrics import mean_reciprocal_rank, median_rank, ranks, recall_at

from ..datasets import glove, lda
from ..experiment import Measure, Outcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..record import Record

TOPS = {"10": 10, "100": 100, "1k": 1000}
METRICS = (*(f"recall@{name}" for name in TOPS), "mrr", "median-rank")
QUERY = 5
CURVE = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_BLOCK = 50  # queries that are ranked at once


@dataclass(frozen=True)
class Concepts:
    """Sets of words, in three parts, the most typical words of each first, and vectors for most of the words."""

    words: list[str]
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    vectors: glove.Vectors

    def named(self, ids: np.ndarray) -> list[list[str]]:
        """Rows of ids as lists of words."""
        return [[self.words[i] for i in row] for row in ids]


def concepts(part: str) -> Concepts:
    """The topics "lda-1k", "lda-3k" or "lda-5k" with GloVe vectors, or "generated" sets."""
    if part == "generated":
        return generated()
    return Concepts(*lda.load(part.removeprefix("lda-")), glove.load())  # type: ignore[arg-type]


def generated(seed: int = 0) -> Concepts:
    """200 sets of 20 of 1,000 words: those near a random place, and, less likely, words that are frequent everywhere.

    >>> found = generated()
    >>> found.train.shape, found.test.shape
    ((160, 20), (20, 20))
    """
    rng = np.random.default_rng(seed)
    meaning, frequent = rng.normal(size=(1000, 8)), rng.exponential(size=1000)
    places = rng.normal(size=(200, 8))
    cosines = places @ meaning.T / np.outer(np.linalg.norm(places, axis=1), np.linalg.norm(meaning, axis=1))
    liking = 8 * cosines + frequent + rng.gumbel(size=cosines.shape)
    sets = np.argsort(-liking, 1)[:, :20]
    words = [f"word{i}" for i in range(1000)]
    seen = meaning @ rng.normal(size=(8, 30)) + 0.5 * rng.normal(size=(1000, 30))
    vectors = glove.Vectors(words[:950], seen[:950].astype(np.float32))
    return Concepts(words, sets[:160], sets[160:180], sets[180:], vectors)


def ask(expander: BaseExpander, data: Concepts, part: str) -> Outcome:
    """The first five words of every test set are the query, the others are to be found among all words but those."""
    found: list[np.ndarray] = []
    for start in range(0, len(data.test), _BLOCK):
        rows = data.test[start : start + _BLOCK]
        scores = expander.scores(data.named(rows[:, :QUERY]))
        found += ranks(scores, truths=rows[:, QUERY:], exclude=rows[:, :QUERY])
    measures = [
        *(Measure(part, f"recall@{name}", 100 * recall_at(found, k)) for name, k in TOPS.items()),
        Measure(part, "mrr", mean_reciprocal_rank(found)),
        Measure(part, "median-rank", median_rank(found)),
    ]
    return Outcome(measures, {"recall": [round(100 * recall_at(found, k), 3) for k in CURVE]})


def curves(records: Sequence[Record]) -> Figure:
    """The share of the truths among the first k, for each data set."""
    from matplotlib.figure import Figure

    parts = sorted({part for record in records for part in record.parts})
    figure = Figure(figsize=(4 * len(parts), 3.5), layout="constrained")
    for axes, part in zip(np.atleast_1d(figure.subplots(1, len(parts), sharey=True)), parts, strict=True):
        for method in dict.fromkeys(record.method for record in records):
            of: list[Any] = [r.parts[part] for r in records if r.method == method and part in r.parts]
            if of:
                axes.plot(CURVE, np.mean([one["extra"]["recall"] for one in of], 0), label=method)
        axes.set(title=part, xscale="log", xlabel="k", ylabel="recall@k, %")
    axes.legend(fontsize="small")
    return figure
