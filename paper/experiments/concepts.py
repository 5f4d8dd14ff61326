"""Text concept retrieval: from five words of a topic to its other words (section 4.2.1, appendix E)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from deepsets.expand import BaseExpander, BayesianSets, BlendedExpander, NearestVectors, RandomExpander, SetExpander
from deepsets.expand.metrics import mean_reciprocal_rank, median_rank, ranks, recall_at

from ..datasets.words import Vectors, cover, load_glove, load_topics
from ..experiment import Experiment, Measure, Outcome, Trial, new_figure
from ..report.scoreboard import Claim, Headline, beats
from ..runner import Record

TOPS = (10, 100, 1000)
METRICS = ("recall@10", "recall@100", "recall@1k", "mrr", "median-rank")
QUERY = 5
CURVE = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
SHOWN = 6  # test sets whose expansions are shown
_BLOCK = 50  # queries that are ranked at once


@dataclass(frozen=True)
class Concepts:
    """Sets of words, in three parts, the most typical words of each first, and vectors for most of the words."""

    words: list[str]
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    vectors: Vectors

    def named(self, ids: Iterable[Iterable[int]]) -> list[list[str]]:
        """Rows of ids as lists of words."""
        return [[self.words[i] for i in row] for row in ids]


Build = Callable[[Concepts, Trial], BaseExpander]


def concepts(part: str) -> Concepts:
    """The topics "lda-1k", "lda-3k" or "lda-5k" with GloVe vectors, or "generated" sets."""
    if part == "generated":
        return generated()
    return Concepts(*load_topics(part.removeprefix("lda-")), load_glove())  # type: ignore[arg-type]


def generated(seed: int = 0) -> Concepts:
    """Generate 200 sets of 20 of 1,000 words: those near a random place and, less likely, frequent words."""
    rng = np.random.default_rng(seed)
    meaning, frequent = rng.normal(size=(1000, 8)), rng.exponential(size=1000)
    places = rng.normal(size=(200, 8))
    cosines = places @ meaning.T / np.outer(np.linalg.norm(places, axis=1), np.linalg.norm(meaning, axis=1))
    liking = 8 * cosines + frequent + rng.gumbel(size=cosines.shape)
    sets = np.argsort(-liking, 1)[:, :20]
    words = [f"word{i}" for i in range(1000)]
    seen = meaning @ rng.normal(size=(8, 30)) + 0.5 * rng.normal(size=(1000, 30))
    vectors = Vectors(words[:950], seen[:950].astype(np.float32))
    return Concepts(words, sets[:160], sets[160:180], sets[180:], vectors)


def ask(expander: BaseExpander, data: Concepts, part: str) -> Outcome:
    """The first five words of every test set are the query, the others are to be found among all words but those.

    Words of the expander beyond those of the data are no candidates.
    """
    found: list[np.ndarray] = []
    shown: list[dict[str, list[str]]] = []
    for start in range(0, len(data.test), _BLOCK):
        rows = data.test[start : start + _BLOCK]
        scores = expander.scores(data.named(rows[:, :QUERY]))[:, : len(data.words)]
        found += ranks(scores, truths=rows[:, QUERY:], exclude=rows[:, :QUERY])
        for row, score in zip(rows[: SHOWN - len(shown)], scores, strict=False):
            best = [i for i in np.argsort(-score, kind="stable")[: QUERY + 10] if i not in row[:QUERY]][:10]
            true, query, words = data.named([row, row[:QUERY], best])
            shown.append({"true": true, "query": query, "found": words})
    extra = {"recall": [round(100 * recall_at(found, k), 3) for k in CURVE], "expanded": shown}
    return Outcome(measures(part, found), extra)


def measures(part: str, found: list[np.ndarray]) -> list[Measure]:
    """Return recall in percent, mean reciprocal rank and median rank, from the ranks of the truths of each query."""
    values = [*(100 * recall_at(found, k) for k in TOPS), mean_reciprocal_rank(found), median_rank(found)]
    return [Measure(part, metric, value) for metric, value in zip(METRICS, values, strict=True)]


def curves(records: Sequence[Record]) -> Any:
    """The share of the truths among the first k, for each data set."""
    parts = sorted({part for record in records for part in record.parts})
    figure = new_figure(4 * len(parts), 3.5)
    for axes, part in zip(np.atleast_1d(figure.subplots(1, len(parts), sharey=True)), parts, strict=True):
        for method in dict.fromkeys(record.method for record in records):
            of: list[Any] = [r.parts[part] for r in records if r.method == method and part in r.parts]
            if of:
                axes.plot(CURVE, np.mean([one["extra"]["recall"] for one in of], 0), label=method)
        axes.set(title=part, xscale="log", xlabel="k", ylabel="recall@k, %")
    axes.legend(fontsize="small")
    return figure


def examples(records: Sequence[Record], kind: str, methods: Sequence[str], most: int | None = None) -> Any:
    """Draw a page of text: what is true, and what each of the methods finds in the first part that has examples.

    kind: "expanded" (from five words), "tagged" (from the image) or "retrieved" (from some tags, and the image).
    `most`: so many of the true ones are shown.
    """
    columns: dict[str, dict[str, Any]] = {}
    for record in reversed(records):
        for name, part in record.parts.items():
            if kind in part["extra"]:
                columns.setdefault(name, {})[record.method] = part["extra"][kind]
    found = columns[min(columns)] if columns else {}
    shown = [method for method in methods if method in found]
    drawing = new_figure(2.8 * (1 + len(shown)), 6)
    axes = drawing.subplots()
    axes.axis("off")
    if shown:
        cells = []
        for answers in zip(*(found[method] for method in shown), strict=True):
            true, given = answers[0]["true"], [] if kind == "tagged" else answers[0]["query"]
            others = _lines([word for word in true if word not in given][:most])
            texts = ([word if word in true else f"{word}*" for word in answer["found"]] for answer in answers)
            cells.append([f"{_lines(given, QUERY)}\n→ {others}" if given else others, *map(_lines, texts)])
        head = ["true" if kind == "tagged" else "given → true", *(f"{m} (* not among the true)" for m in shown)]
        table = axes.table(cells, colLabels=head, cellLoc="left", loc="center")
        table.auto_set_font_size(False)
        table.set_fontsize(7)
        table.scale(1, 2 if kind == "tagged" else 4)
    return drawing


def _lines(words: Sequence[str], width: int = 4) -> str:
    return ",\n".join(", ".join(words[i : i + width]) for i in range(0, len(words), width))


def _method(build: Build, *, closed: bool = True) -> Callable[[Trial, str], Outcome]:
    """Return a method that knows the words of the topics; not `closed`, also all others that have a vector."""

    def run(trial: Trial, part: str) -> Outcome:
        data = concepts(part)
        known = data if closed else replace(data, words=list(dict.fromkeys([*data.words, *data.vectors.words])))
        expander = build(known, trial)
        expander.fit(data.named(data.train), vocabulary=known.words, validation=data.named(data.val))
        trial.keep(expander)
        return ask(expander, data, part)

    return run


_SMALL = {"epochs": 60, "patience": 8, "learning_rate": 3e-3, "negatives": 256, "average_weights": 0.0}
_LARGE = {"epochs": 45, "patience": None, "learning_rate": 1e-3, "negatives": 512, "average_weights": 0.998}  # LDA-5k
_QUICK = {"epochs": 20, "patience": None, "learning_rate": 1e-3, "negatives": 256, "average_weights": 0.0}


def network(pool: str, concat: bool) -> Build:
    """Return the network of the paper, its sizes and loss; embeddings start from standardised word vectors."""

    def build(data: Concepts, trial: Trial) -> BaseExpander:
        words, vectors = data.vectors
        start = (vectors - vectors.mean(0)) / vectors.std()
        training: dict[str, Any] = (_LARGE if len(data.train) >= 4000 else _SMALL) if trial.full else _QUICK
        chosen = trial.choose(
            **training, weight_decay=0.05, batch_size=64, phi=(150, 150), rho=(150, 75), margin=1.0, query=(2, 10)
        )
        return SetExpander(
            pool, concat=concat, vectors=(words, start), random_state=trial.seed, checkpoint_dir=trial.folder,
            verbose=trial.progress, **vars(chosen),
        )  # fmt: skip

    return build


def _ours(data: Concepts, trial: Trial) -> BaseExpander:
    questions = max(1, round(5000 / len(data.train))) if trial.full else 2
    return BlendedExpander(
        vectors=cover(data.words, data.vectors), query=(5, 5), head=3.0, queries_per_set=questions, negatives=80,
        epochs=6, random_state=trial.seed,
    )  # fmt: skip


PUBLISHED = {
    "Random": ((0.06, 0.6, 5.9, 0.001, 8520), (0.02, 0.2, 2.6, 0.000, 28635), (0.01, 0.2, 1.6, 0.000, 30600)),
    "Bayes Set": ((1.69, 11.9, 37.2, 0.007, 2848), (2.01, 14.5, 36.5, 0.008, 3234), (1.75, 12.5, 34.5, 0.007, 3590)),
    "w2v Near": ((6.00, 28.1, 54.7, 0.021, 641), (4.80, 21.2, 43.2, 0.016, 2054), (4.03, 16.7, 35.2, 0.013, 6900)),
    "NN-max": ((4.78, 22.5, 53.1, 0.023, 779), (5.30, 24.9, 54.8, 0.025, 672), (4.72, 21.4, 47.0, 0.022, 1320)),
    "NN-sum-con": ((4.58, 19.8, 48.5, 0.021, 1110), (5.81, 27.2, 60.0, 0.027, 453), (4.87, 23.5, 53.9, 0.022, 731)),
    "NN-max-con": ((3.36, 16.9, 46.6, 0.018, 1250), (5.61, 25.7, 57.5, 0.026, 570), (4.72, 22.0, 51.8, 0.022, 877)),
    "Deep Sets": ((5.53, 24.2, 54.3, 0.025, 696), (6.04, 28.5, 60.7, 0.027, 426), (5.54, 26.1, 55.5, 0.026, 616)),
}
PARTS = ("lda-1k", "lda-3k", "lda-5k")

BUILDS: dict[str, Build] = {
    "Random": lambda data, trial: RandomExpander(random_state=trial.seed),
    "Bayes Set": lambda data, trial: BayesianSets(),
    "w2v Near": lambda data, trial: NearestVectors(data.vectors, center=False, components=0),
    "w2v Near, centred": lambda data, trial: NearestVectors(data.vectors, center=True, components=2),
    "NN-max": network("max", concat=False),
    "NN-sum-con": network("sum", concat=True),
    "NN-max-con": network("max", concat=True),
    "Deep Sets": network("sum", concat=False),
    "Ours": _ours,
}

EXPERIMENT = Experiment(
    name="concepts",
    title="Text concept retrieval",
    section="4.2.1",
    parts=lambda full: PARTS if full else ("generated",),
    methods={
        **{name: _method(build) for name, build in BUILDS.items()},
        "Ours, open vocabulary": _method(_ours, closed=False),
    },
    published={
        (method, part, metric): float(value)
        for method, rows in PUBLISHED.items()
        for part, row in zip(PARTS, rows, strict=True)
        for metric, value in zip(METRICS, row, strict=True)
    },
    figures={
        "Recall": curves,
        "Expansions of test topics": partial(
            examples, kind="expanded", methods=("w2v Near", "Bayes Set", "Deep Sets", "Ours"), most=10
        ),
    },
    headlines=[
        Headline(f"{part.upper().replace('K', 'k')}, {metric}", part, metric) for part in PARTS for metric in METRICS
    ],
    claims=[
        Claim(
            "Deep Sets outperforms all other approaches on LDA-3k and LDA-5k by any metric",
            beats("Deep Sets", list(PUBLISHED)[:-1], [(part, metric) for part in PARTS[1:] for metric in METRICS]),
        ),
        Claim(
            "on LDA-1k, all networks are behind w2v Near",
            beats("w2v Near", list(PUBLISHED)[3:], [("lda-1k", metric) for metric in METRICS[:3]]),
        ),
    ],
)
