"""Forty everyday queries over twenty kinds of things, and recall on concept lists, for `deepsets expand`.

    python -m benchmarks everyday

An answer is right if it is in the list of its kind (`data/concept_lists.txt`), below one of the given nouns of WordNet,
or among the answers that were judged by hand (`data/judged.txt`). The lists of forty further queries
(`data/final_queries.txt`) and of forty more (`data/third_queries.txt`) were written before any answer to them was
looked at. The method was improved while looking at answers to the first two lists; the third was only measured.
"""

from __future__ import annotations

import functools
import gzip
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from deepsets.expand.vocabulary import fold
from deepsets.expand.words import WORD_METHODS, word_expander

from .results import write

FOLDER = Path(__file__).parent / "data"
DATA = Path(os.environ.get("DEEPSETS_DATA", "data"))

# kind (a concept list): nouns of WordNet, then two queries
QUERIES = {
    "programming languages": ("programming_language", "python java ruby", "perl javascript php"),
    "car makers": ("", "toyota honda ford", "bmw audi volkswagen"),
    "football clubs": ("", "arsenal chelsea liverpool", "juventus barcelona ajax"),
    "cheeses": ("cheese", "cheddar brie gouda", "mozzarella feta"),
    "companies": ("", "microsoft google apple", "sony samsung nokia"),
    "painkillers": ("analgesic anodyne", "aspirin ibuprofen tylenol", "morphine codeine"),
    "african animals": ("mammal", "lion tiger leopard", "elephant giraffe zebra"),
    "capitals": ("national_capital city", "paris london rome", "tokyo beijing seoul"),
    "days": ("day_of_the_week", "monday tuesday", "Wednesday, Thursday"),
    "scientists": ("scientist", "einstein newton darwin", "Galileo, Kepler, Copernicus"),
    "colours": ("color chromatic_color", "red green blue", "purple pink"),
    "musical instruments": ("musical_instrument", "violin cello", "trumpet saxophone flute"),
    "trees": ("tree", "oak elm birch", "pine spruce"),
    "fruits": ("edible_fruit fruit", "apple pear", "banana mango pineapple"),
    "drinks": ("beverage", "coffee tea", "whiskey vodka rum"),
    "music genres": ("music_genre popular_music", "jazz rock blues", "reggae ska funk"),
    "currencies": ("monetary_unit", "dollar euro", "yen pound peso"),
    "planets": ("celestial_body", "mercury venus mars", "jupiter saturn"),
    "family": ("relative kinsman", "mother father", "uncle aunt cousin"),
    "clothes": ("clothing garment footwear", "shirt trousers jacket", "shoes socks"),
}


CLOSED = ("days",)


def further_queries(name: str) -> dict[str, tuple[list[str], str, list[str]]]:
    """Kinds of a file: members, nouns of WordNet, two queries."""
    out = {}
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            head, members = line.split(": ", 1)
            kind, nouns, *queries = (part.strip() for part in head.split("|"))
            out[kind] = [member.strip() for member in members.split(",")], nouns, queries
    return out


def first_queries() -> dict[str, tuple[list[str], str, list[str]]]:
    """The kinds of `QUERIES`, with answers that were judged by hand."""
    lists = {kind.removeprefix("*"): members for kind, members in read_lists("concept_lists.txt").items()}
    judged = read_lists("judged.txt")
    return {kind: (lists[kind] + judged.get(kind, []), nouns, two) for kind, (nouns, *two) in QUERIES.items()}


def read_lists(name: str) -> dict[str, list[str]]:
    """Lists by their name; * marks those that the weights were learned from."""
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    pairs = [line.split(": ", 1) for line in lines if line and not line.startswith("#")]
    return {kind: [member.strip() for member in members.split(",")] for kind, members in pairs}


@functools.cache
def wordnet() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Words of each synset of nouns, and the synsets below it."""
    words: dict[str, list[str]] = {}
    children: dict[str, list[str]] = {}
    with gzip.open(DATA / "wordnet" / "data.noun.gz", "rt", encoding="ascii") as file:
        for line in file:
            if line.startswith(" "):
                continue
            fields = line.split(" | ")[0].split(" ")
            count = int(fields[3], 16)
            words[fields[0]] = [fields[4 + 2 * i] for i in range(count)]
            rest = fields[5 + 2 * count :]
            children[fields[0]] = [rest[i + 1] for i in range(0, len(rest) - 3, 4) if rest[i] in ("~", "~i")]
    return words, children


def below(nouns: list[str]) -> set[str]:
    """All words below the nouns in WordNet."""
    words, children = wordnet()
    queue = [offset for offset, names in words.items() if set(names) & set(nouns)]
    seen = set(queue)
    while queue:
        queue += [child for child in children[queue.pop()] if child not in seen and not seen.add(child)]  # type: ignore[func-returns-value]
    return {fold(word) for offset in seen for word in words[offset]}


CASES: dict[str, Callable[[], dict[str, tuple[list[str], str, list[str]]]]] = {
    "40 everyday queries": first_queries,
    "40 further everyday queries": lambda: further_queries("final_queries.txt"),
    "40 everyday queries, not looked at": lambda: further_queries("third_queries.txt"),
}


def everyday(method: str, case: str, show: bool = False) -> dict[str, Any]:
    """Share of right answers among ten, over the queries that are answered."""
    expander = word_expander(method)
    right, seconds = [], []
    for kind, (members, nouns, queries) in CASES[case]().items():
        accepted = {fold(word) for word in members} | (below(nouns.split()) if nouns else set())
        plurals = {word + "s" for word in accepted} | {word.removesuffix("s") for word in accepted}
        for query in queries:
            start = time.process_time()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    answers = [fold(found.element) for found in expander.expand(query, k=10)]
            except ValueError:
                continue
            seconds.append(time.process_time() - start)
            wrong = [answer for answer in answers if answer not in accepted | plurals]
            # Of a closed kind there may be fewer than ten right answers: the five other days of the week.
            most = min(10, len(members) - len(expander.parse(query).members)) if kind in CLOSED else 10
            right.append(10 * min(1.0, (10 - len(wrong)) / most))
            if show:
                print(f"{right[-1]:4.1f}  {kind}: {query}  wrong: {', '.join(wrong)}")
    return {
        "case": case,
        "method": method,
        "answered": len(right),
        "right of 10": float(np.mean(right)),
        "CPU ms per answer": 1e3 * float(np.median(seconds)),
    }


def concept_lists(method: str, seeds: int = 5, k: int = 20) -> dict[str, Any]:
    """Recall of the lists that the weights were not learned from; the share of their words that is known."""
    expander, rng = word_expander(method), np.random.default_rng(0)
    found, known, total = [], 0, 0
    for kind, members in read_lists("concept_lists.txt").items():
        ids = list(dict.fromkeys(i for member in members if (i := expander.find(member)) is not None))
        if kind.startswith("*") or len(ids) <= seeds:
            continue
        known, total = known + len(ids), total + len(set(members))
        order = rng.permutation(ids)
        best = expander.expand([expander.vocabulary_[i] for i in order[:seeds]], k)
        answers = {expander.find(one.element) for one in best}
        found.append(len(answers & set(order[seeds:].tolist())) / (len(ids) - seeds))
    return {
        "case": f"{len(found)} concept lists, {seeds} seeds",
        "method": method,
        "words known": known / total,
        f"recall@{k}": float(np.mean(found)),
    }


def run() -> list[dict[str, Any]]:
    """All methods."""
    rows = [everyday(method, case) for case in CASES for method in WORD_METHODS]
    rows += [concept_lists(method) for method in WORD_METHODS]
    write("everyday", rows)
    return rows
