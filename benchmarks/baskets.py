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
from deepsets.expand.metrics import mean_reciprocal_rank, ranks, recall_at

DATA = Path(os.environ.get("DEEPSETS_DATA", "data"))


def movielens() -> tuple[list[list[str]], list[list[str]]]:
    """Movies that a user rated 4 or more; a fifth of the users for the test."""
    liked: dict[str, list[str]] = {}
    with gzip.open(DATA / "movielens" / "ratings.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if float(row["rating"]) >= 4:
                liked.setdefault(row["user"], []).append(row["movie"])
    return _split(list(liked.values()))


def flickr8k(most: int = 6000) -> tuple[list[list[str]], list[list[str]]]:
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
    return _split([[w for w in words if 5 <= counts[w] < len(sets) / 3] for words in sets[:most]])


def lda() -> tuple[list[list[str]], list[list[str]]]:
    """Topics of 50 words, the authors' split."""
    content = json.loads(gzip.decompress((DATA / "lda" / "lda_top_words_split_allwords_1k.json.gz").read_bytes()))
    parts = content["data"]
    return [list(map(str, row)) for row in parts["train"]], [list(map(str, row)) for row in parts["test"]]


def _split(sets: list[list[str]]) -> tuple[list[list[str]], list[list[str]]]:
    sets = [members for members in sets if len(members) >= 2]
    order = np.random.default_rng(1).permutation(len(sets))
    cut = len(sets) // 5
    return [sets[i] for i in order[cut:]], [sets[i] for i in order[:cut]]


def _bm25(table: sp.csr_array, queries: sp.csr_array, k1: float = 1.2, b: float = 0.75) -> np.ndarray:
    """Item-item similarity with BM25 weights, as in `implicit`."""
    counts, lengths = np.asarray(table.sum(0)).ravel(), np.asarray(table.sum(1)).ravel()
    inverse = np.log(table.shape[0] / (1 + counts))
    weight = (k1 + 1) / (k1 * (1 - b + b * lengths / lengths.mean()) + 1)
    weighted = sp.csr_array(table * weight[:, None] * inverse[None])
    return np.asarray((queries @ (weighted.T @ weighted)).todense())


def measure(name: str, train: list[list[str]], test: list[list[str]], seed: int = 0) -> list[dict[str, Any]]:
    """Hold out one known member of every test set."""
    words = sorted({w for members in train for w in members})
    place = {w: i for i, w in enumerate(words)}
    rng, queries, truths = np.random.default_rng(seed), [], []
    for members in test:
        ids = rng.permutation(sorted({place[w] for w in members if w in place}))
        if len(ids) >= 2:
            queries.append(np.sort(ids[1:]))
            truths.append(ids[:1])
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
    out = []
    for way, scores in ways.items():
        start = time.process_time()
        found = ranks(scores(), truths, queries)
        row = {"data": name, "way": way, "recall@10": recall_at(found, 10), "mrr": mean_reciprocal_rank(found)}
        out.append({**row, "CPU seconds": time.process_time() - start})
        print(out[-1], flush=True)
    return out


def run() -> list[dict[str, Any]]:
    """All data sets."""
    return [row for get in (movielens, flickr8k, lda) for row in measure(get.__name__, *get())]
