"""Held-out members of baskets: the default `Expander` beside popularity, item-item methods, EASE and `implicit`.

python -m benchmarks baskets
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from deepsets.expand import EASE, Expander, ItemItem, Popularity
from deepsets.expand.metrics import ranks

from .results import write

DATA = Path(os.environ.get("DEEPSETS_DATA", "data"))


Split = tuple[list[list[str]], list[list[str]]]


def movielens() -> list[Split]:
    """Movies that a user rated 4 or more; five folds, so that each user is tested once."""
    liked: dict[str, list[str]] = {}
    with gzip.open(DATA / "movielens" / "ratings.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if float(row["rating"]) >= 4:
                liked.setdefault(row["user"], []).append(row["movie"])
    return _folds(list(liked.values()), 5)


def flickr8k(most: int = 6000) -> list[Split]:
    """Words of the captions of an image that occur in at least two of its captions, but not in every third image."""
    captions: dict[str, list[set[str]]] = {}
    with gzip.open(DATA / "flickr8k" / "Flickr8k.lemma.token.txt.gz", "rt") as file:
        for line in file:
            name, text = line.rstrip("\n").split("\t")
            captions.setdefault(name.split("#")[0], []).append({w for w in text.split() if w.isalpha() and len(w) > 2})
    sets = [sorted({w for one in c for w in one if sum(w in other for other in c) >= 2}) for c in captions.values()]
    counts: dict[str, int] = {}
    for words in sets:
        for word in words:
            counts[word] = counts.get(word, 0) + 1
    return _folds([[w for w in words if 5 <= counts[w] < len(sets) / 3] for words in sets[:most]], 2)


def lda() -> list[Split]:
    """Topics of 50 words, the authors' split; five members of each are held out in turn."""
    content = json.loads(gzip.decompress((DATA / "lda" / "lda_top_words_split_allwords_1k.json.gz").read_bytes()))
    parts = content["data"]
    return [([list(map(str, row)) for row in parts["train"]], [list(map(str, row)) for row in parts["test"]])]


def supermarket(kinds: tuple[int, ...] = (6, 12, 20)) -> list[Split]:
    """Generated baskets: 169 items, Zipf-like popularity, short baskets from a mixture of kinds of purchases."""
    return [_folds(_generated(seed, count), 1)[0] for seed, count in enumerate(kinds)]


def _generated(seed: int, kinds: int, items: int = 169, baskets: int = 9835) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    popularity = -0.9 * np.log(np.arange(1, items + 1) + 2) + 0.35 * rng.normal(size=items)
    liking = 1.8 * rng.normal(size=(kinds, items)) * (rng.random((kinds, items)) < 0.35)
    pairs = rng.integers(items, size=(60, 2))  # the first draws the second along
    out = []
    for size, mixture in zip(rng.geometric(1 / 4.4, baskets), rng.dirichlet(np.full(kinds, 0.3), baskets), strict=True):
        drawn = np.argsort(-(popularity + mixture @ liking + rng.gumbel(size=items)))[:size]
        along = pairs[np.isin(pairs[:, 0], drawn) & (rng.random(len(pairs)) < 0.15), 1]
        out.append([f"item {i}" for i in np.union1d(drawn, along)])
    return out


def _folds(sets: list[list[str]], count: int) -> list[Split]:
    """`count` of five folds for the test."""
    sets = [members for members in sets if len(members) >= 2]
    places = np.array_split(np.random.default_rng(1).permutation(len(sets)), 5)[:count]
    return [
        ([members for i, members in enumerate(sets) if i not in set(held.tolist())], [sets[i] for i in held])
        for held in places
    ]


def _bm25(table: sp.csr_array, queries: sp.csr_array, k1: float = 1.2, b: float = 0.75) -> np.ndarray:
    """Item-item similarity with BM25 weights, as in `implicit`."""
    counts, lengths = np.asarray(table.sum(0)).ravel(), np.asarray(table.sum(1)).ravel()
    inverse = np.log(table.shape[0] / (1 + counts))
    weight = (k1 + 1) / (k1 * (1 - b + b * lengths / lengths.mean()) + 1)
    weighted = sp.csr_array(table * weight[:, None] * inverse[None])
    return np.asarray((queries @ (weighted.T @ weighted)).todense())


def _held_out(test: list[list[str]], place: dict[str, int], times: int, most: int | None) -> list[Any]:
    """(query, truth) for each test set: one known member is held out; of the others all, or `most`, are the query."""
    rng, found = np.random.default_rng(0), []
    for members in test:
        ids = rng.permutation(sorted({place[w] for w in members if w in place}))
        for t in range(min(times, len(ids)) if len(ids) >= 2 else 0):
            found.append((np.sort(np.delete(ids, t)[:most]), ids[t : t + 1]))
    return found


def measure(train: list[list[str]], test: list[list[str]], times: int, most: int | None) -> dict[str, Any]:
    """Ranks of the held-out members and CPU seconds of each way."""
    words = sorted({w for members in train for w in members})
    place = {w: i for i, w in enumerate(words)}
    queries, truths = zip(*_held_out(test, place, times, most), strict=True)
    named = [[words[i] for i in query] for query in queries]
    table, asked = (
        sp.csr_array(
            (np.ones(sum(map(len, rows))), np.concatenate(rows), np.cumsum([0, *map(len, rows)])),
            shape=(len(rows), len(words)),
        )
        for rows in ([np.array(sorted({place[w] for w in members})) for members in train], queries)
    )
    ways: dict[str, Callable[[], np.ndarray]] = {
        "popularity": lambda: Popularity().fit(train, items=words).scores(named),
        "cosine": lambda: ItemItem().fit(train, items=words).scores(named),
        "BM25": lambda: _bm25(table, asked),
        "EASE": lambda: EASE(100.0).fit(train, items=words).scores(named),
        "Expander": lambda: Expander().fit(train, items=words).scores(named),
    }
    try:
        from implicit.als import AlternatingLeastSquares
    except ImportError:
        pass
    else:

        def als() -> np.ndarray:
            model = AlternatingLeastSquares(64, random_state=0, num_threads=1)
            model.fit(sp.csr_matrix(table, dtype=np.float32), show_progress=False)
            users = model.recalculate_user(np.arange(len(queries)), sp.csr_matrix(asked, dtype=np.float32))
            return np.asarray(users @ model.item_factors.T)

        ways["implicit ALS"] = als
    out = {}
    for way, scores in ways.items():
        start = time.process_time()
        out[way] = np.concatenate(ranks(scores(), truths, queries)), time.process_time() - start
    return out


def case(get: Callable[[], list[Split]], most: int | None = None) -> list[dict[str, Any]]:
    """Recall@10 and MRR over all splits, with the standard error of the paired difference to `Expander`."""
    splits = [measure(*split, times=5 if get is lda else 1, most=most) for split in get()]
    found = {way: np.concatenate([split[way][0] for split in splits]) for way in splits[0]}
    out = []
    for way, places in found.items():
        behind = (found["Expander"] <= 10).astype(float) - (places <= 10)
        row = {"data": get.__name__ + (f", queries of {most}" if most else ""), "way": way, "queries": len(places)}
        row |= {"recall@10": float(np.mean(places <= 10)), "mrr": float(np.mean(1 / places))}
        row |= {"Expander ahead": float(behind.mean()), "standard error": float(behind.std() / len(behind) ** 0.5)}
        row["CPU seconds per fit and answers"] = float(np.mean([split[way][1] for split in splits]))
        out.append(row)
        print(row, flush=True)
    return out


def run() -> list[dict[str, Any]]:
    """All data sets, and queries of two members; the results so far are written after each."""
    rows: list[dict[str, Any]] = []
    for get, most in ((supermarket, None), (movielens, None), (flickr8k, None), (lda, None), (movielens, 2)):
        rows += case(get, most)
        write("baskets", rows)
    return rows
