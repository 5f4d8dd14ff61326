"""Image tagging: five tags from the image alone; the remaining tags from some of them (section 4.2.2, appendix F)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from deepsets.expand import NearestVectors
from deepsets.expand.metrics import ranks

from ..baselines.tagging import JEC, MBRM, FastTag, LeastSquares, Tagger, choose, tag_scores, top_tags
from ..datasets.tagging import FILES, Problem, available, problem
from ..experiment import Experiment, Measure, Outcome, Trial
from ..report.scoreboard import Claim, Headline, beats
from .concepts import METRICS, examples, measures
from .tags_networks import TagHeads, TagNetwork, fit_network, network_scores

METHODS = ("FastTag", "Deep Sets", "Deep Sets, smooth loss", "Ours")
TAG_METRICS = ("precision", "recall", "f1", "n+")
BASELINES = ["Least Sq.", "MBRM", "JEC", "FastTag"]
DEEP_SETS = ("Deep Sets", "Deep Sets, smooth loss")
CAPTIONS = [(part, metric) for part in ("coco-tag", "flickr8k") for metric in METRICS]


NOTHING = Outcome([])  # a method that does not take part
SHOWN = 8  # images whose tags are shown


def _tagger(candidates: Callable[[], Sequence[Tagger]]) -> Callable[[Trial, str], Outcome]:
    """A baseline, its settings chosen by cross-validation on the training images."""

    def run(trial: Trial, part: str) -> Outcome:
        data = problem(part)
        if not data.tagging:
            return NOTHING
        tagger = choose(candidates(), data.x_train, data.matrix(data.train), seed=trial.seed)
        return tagging(part, data, tagger.scores(data.x_test))

    return run


def _nearest(center: bool) -> Callable[[Trial, str], Outcome]:
    """Cosine to the sum of the word vectors of the query; centred: without mean and two principal directions."""

    def run(trial: Trial, part: str) -> Outcome:
        data = problem(part)
        vectors = data.vectors if center else data.raw_vectors
        if not data.retrieval or vectors is None:
            return NOTHING
        known = np.flatnonzero(np.abs(vectors).sum(1))
        expander = NearestVectors((known.tolist(), vectors[known]), center=center, components=2 * center)
        expander.fit(vocabulary=range(len(data.names)))
        return retrieval(part, data, expander.scores(data.asked))

    return run


class Learned(NamedTuple):
    """A learned row: its network, and its settings for tagging and for retrieval; `members` networks are averaged."""

    kind: type[TagNetwork] | type[TagHeads]
    tagging: dict[str, Any]
    retrieval: dict[str, Any]


# Those of tagging were tried on a ninth of the training images of Corel5K, those of retrieval follow from them.
_COMMON = dict(members=1, drop=0.5, candidates=64, learning_rate=3e-3)
HINGE = Learned(
    TagNetwork, dict(**_COMMON, alone=0.8, epochs=30, margin=1.0), dict(**_COMMON, alone=0.0, epochs=12, margin=1.0)
)
SMOOTH = Learned(TagNetwork, dict(**_COMMON, alone=0.8, epochs=30, balance=0.5), dict(**_COMMON, alone=0.0, epochs=12))
HEADS = Learned(
    TagHeads,
    dict(members=3, balance=0.75, epochs=20),
    dict(members=3, alone=0.0, candidates=10_000, epochs=10),
)


def _learned(row: Learned, *, blind: bool = False) -> Callable[[Trial, str], Outcome]:
    def run(trial: Trial, part: str) -> Outcome:
        data, outcome = problem(part), Outcome([], {})
        z_train, z_test = (None, None) if blind else (data.z_train, data.z_test)

        def scores(task: Literal["tagging", "retrieval"], queries: list[np.ndarray]) -> np.ndarray:
            """Return the mean score of the networks."""
            quick = {} if trial.full else {"epochs": 20, "members": 1}
            options = vars(trial.choose(**{**getattr(row, task), **quick}))
            members, found = options.pop("members"), []
            for member in range(members):
                network = fit_network(
                    row.kind, data.train, z_train, len(data.names),
                    vectors=data.vectors if task == "retrieval" else None,
                    seed=trial.seed * members + member, checkpoint_dir=trial.folder / f"{task}-{member}",
                    progress=trial.progress, **options,
                )  # fmt: skip
                found.append(network_scores(network, queries, z_test))
            return np.mean(found, axis=0)

        if data.tagging and not blind:
            outcome = tagging(part, data, scores("tagging", [np.zeros(0, np.int64)] * len(data.test)))
        if data.retrieval:
            found = retrieval(part, data, scores("retrieval", data.asked))
            outcome = Outcome(outcome.measures + found.measures, outcome.extra | found.extra)
        return outcome

    return run


def tagging(part: str, data: Problem, scores: np.ndarray) -> Outcome:
    """Five tags an image: precision, recall and F1 over tags, N+; with true and given tags of some images."""
    *shares, n_plus = tag_scores(scores, data.matrix(data.test))
    values = [*(100 * float(share) for share in shares), float(n_plus)]
    shown = [_shown(data, i, best) for i, best in enumerate(top_tags(scores[:SHOWN]))]
    return Outcome([Measure(part, name, v) for name, v in zip(TAG_METRICS, values, strict=True)], {"tagged": shown})


def retrieval(part: str, data: Problem, scores: np.ndarray) -> Outcome:
    """Some tags are given, the others are looked for among all that were not given."""
    best = scores[:SHOWN].astype(float)
    for row, given in zip(best, data.asked, strict=False):
        row[given] = -np.inf
    shown = [_shown(data, i, row) for i, row in enumerate(top_tags(best, 10))]
    return Outcome(measures(part, ranks(scores, data.wanted, data.asked)), {"retrieved": shown})


def _shown(data: Problem, image: int, best: np.ndarray) -> dict[str, list[str]]:
    true, given, found = data.test[image], data.asked[image], best.tolist()
    shown = {"true": true, "query": given, "found": found} if data.retrieval else {"true": true, "found": found}
    return {label: [data.names[i] for i in ids] for label, ids in shown.items()}


def _published() -> dict[tuple[str, str, str], float]:
    """The paper's tables; rows marked (D) there are those of the methods on deep features, as here."""
    table = {
        "Least Sq.": ((44, 32, 37, 232), (46, 30, 36, 218)),
        "MBRM": ((18, 19, 18, 209), (24, 23, 23, 223)),
        "JEC": ((24, 19, 21, 222), (29, 19, 23, 211)),
        "FastTag": ((44, 32, 37, 229), (46, 33, 38, 254)),
        "Deep Sets": ((39, 34, 36, 246), (42, 31, 36, 247)),
    }
    found: dict[tuple[str, str, str], float] = {}
    for method, both in table.items():
        for data, values in zip(("espgame", "iaprtc12"), both, strict=True):
            found |= {(method, data, metric): v for metric, v in zip(TAG_METRICS, values, strict=True)}
    coco = {
        "w2v NN (blind)": (5.6, 20.0, 54.2, 0.021, 823),
        "Deep Sets (blind)": (9.0, 39.2, 71.3, 0.044, 310),
        "Deep Sets": (31.4, 73.4, 95.3, 0.131, 28),
    }
    for method, row in coco.items():
        found |= {(method, "coco-tag", metric): value for metric, value in zip(METRICS, row, strict=True)}
    return found


EXPERIMENT = Experiment(
    name="tags",
    title="Image tagging",
    section="4.2.2",
    methods={
        "Least Sq.": _tagger(lambda: [LeastSquares(penalty) for penalty in (0.01, 0.03, 0.1, 0.3, 1.0)]),
        "Least Sq. balanced": _tagger(lambda: [LeastSquares(p, b) for p in (0.1, 0.3, 1.0) for b in (0.5, 0.75, 1.0)]),
        "MBRM": _tagger(lambda: [MBRM(w, m) for w in (0.01, 0.02, 0.03, 0.05) for m in (1e4, 1e5)]),
        "JEC": _tagger(lambda: [JEC(neighbours) for neighbours in (2, 3, 5, 10)]),
        "FastTag": _tagger(lambda: [FastTag(p, g, w) for p in (0.1, 0.3) for g in (10, 100) for w in (0.03, 0.1)]),
        "w2v NN (blind)": _nearest(center=False),
        "w2v NN, centred (blind)": _nearest(center=True),
        "Deep Sets (blind)": _learned(HINGE, blind=True),
        "Deep Sets": _learned(HINGE),
        "Deep Sets, smooth loss (blind)": _learned(SMOOTH, blind=True),
        "Deep Sets, smooth loss": _learned(SMOOTH),
        "Ours": _learned(HEADS),
    },
    optional=list(FILES),
    parts=lambda full: ("corel5k", "flickr8k", *filter(available, FILES)) if full else ("generated",),
    published=_published(),
    figures={
        "Tags of eight test images": partial(examples, kind="tagged", methods=METHODS),
        "The other tags of eight test images": partial(examples, kind="retrieved", methods=METHODS),
    },
    headlines=[
        Headline(f"{label}, {method}", data, metric, paper=value, faithful=method)
        for label, data, metric, value in (
            ("Corel5K (paper: ESPgame), F1", "corel5k", "f1", 36),
            ("Flickr8k-Tag (paper: COCO-Tag), recall@10", "flickr8k", "recall@10", 31.4),
            ("Flickr8k-Tag (paper: COCO-Tag), median rank", "flickr8k", "median-rank", 28),
        )
        for method in DEEP_SETS
    ],
    claims=[
        claim
        for method in DEEP_SETS
        for claim in (
            Claim(
                f"recall beats that of the best other approach ({method})",
                beats(method, BASELINES, [(part, "recall") for part in ("espgame", "corel5k")]),
            ),
            Claim(
                f"F1 is comparable to the best approaches, not below FastTag and least squares ({method})",
                beats(method, ["FastTag", "Least Sq."], [(part, "f1") for part in ("espgame", "iaprtc12", "corel5k")]),
            ),
            Claim(
                f"clearly outperforms its blind form and nearest word vectors on tags of captions ({method})",
                beats(method, [f"{method} (blind)", "w2v NN (blind)"], CAPTIONS),
            ),
        )
    ],
)
