"""Concept sets from WordNet's nouns:  lion tiger leopard jaguar … are big cats.

    python scripts/wordnet_concepts.py data.noun.gz glove/ src/deepsets/expand/concepts/concepts.txt.gz

A concept is a noun with what stands below it in WordNet: its direct hyponyms and instances, and all of its
descendants. WordNet knows many words that people do not, and rare senses of words that they do (Michigan is a card
game). Word vectors, in order of frequency (`words.txt` and `vectors_f16.npy`), decide what is kept: words that have a
vector; senses in which the word is near to the words of its definition and to its relatives in WordNet; concepts
whose members are near to each other. No vector goes into the file: it holds lists of words, one concept a line, its
name first, then the members, the most frequent first; the first line holds all words. Wide nouns are also taken
apart, into groups of words that are used alike. Takes some minutes.
"""

from __future__ import annotations

import argparse
import gzip
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import AgglomerativeClustering

KNOWN_IN_PHRASE = 15_000  # the words of a phrase are more frequent than this
PHRASE = 40_000  # how much less familiar a phrase is than its rarest word
RARE_NAME = 40_000  # names (with a capital) are more frequent than this
LEAST_SENSE = 0.12  # cosine of a sense with its word
LEAST_SHARE, LEAST_SHARE_NAME, MOST_SENSES = 0.5, 0.75, 3  # of the cosine of the word's best sense
LEAST_CONCEPT, LEAST_MEMBER = 0.3, 0.2  # cosine of members with the rest of their concept: mean, each
MOST_SYNONYMS = 3  # of a synset
FEWEST, MOST = 4, 60  # members
WIDE, WIDEST = 800, 2000  # words under a noun: more are no concept, but groups of them may be; too many for that
GROUP = 30  # words from which a noun is taken apart, into groups of half as many
SAME, SAME_GROUP = 0.85, 0.5  # Jaccard similarity from which a concept, or a group, is one that is there already


class Synset(NamedTuple):
    """Words that share a meaning, its definition, and the synsets around it."""

    words: list[str]
    gloss: list[str]
    above: list[str]
    below: list[str]


class Concept(NamedTuple):
    """A noun, its members, how many words stand under it, and whether these are a group of them only."""

    name: str
    members: list[str]
    under: int
    group: bool


def read_wordnet(path: Path) -> dict[str, Synset]:
    """The synsets of `data.noun.gz`, by their offset (see WordNet's page wndb(5))."""
    synsets = {}
    with gzip.open(path, "rt", encoding="ascii") as file:
        for line in file:
            if line.startswith(" "):  # the notice
                continue
            head, gloss = line.split(" | ", 1)
            fields = head.split(" ")
            count = int(fields[3], 16)
            words = [fields[4 + 2 * i].replace("_", " ") for i in range(count)]
            rest = fields[5 + 2 * count :]
            pointers = [(rest[i], rest[i + 1]) for i in range(0, len(rest) - 3, 4)]
            above = [other for kind, other in pointers if kind in ("@", "@i")]
            below = [other for kind, other in pointers if kind in ("~", "~i")]
            synsets[fields[0]] = Synset(words, re.findall(r"[a-z]+", gloss.lower()), above, below)
    return synsets


class Vectors:
    """Unit vectors of words and phrases, without their mean and first two principal directions."""

    def __init__(self, folder: Path) -> None:
        words = folder.joinpath("words.txt").read_text().split("\n")
        table = np.load(folder / "vectors_f16.npy").astype(np.float32)
        self.rank = {word: i for i, word in enumerate(words[: len(table)])}
        table -= table.mean(0)
        directions = np.linalg.eigh(table.T @ table)[1][:, -2:]
        table -= (table @ directions) @ directions.T
        self.table = table / np.linalg.norm(table, axis=1, keepdims=True).clip(1e-9)

    def mean(self, words: list[str]) -> np.ndarray:
        """(D,) of length 1; rare words weigh more, 0 if none is known."""
        ids = [self.rank[w] for w in words if w in self.rank]
        weights = np.log1p(np.array(ids, dtype=np.float32) / 100)
        return unit(weights @ self.table[ids]) if ids else np.zeros(self.table.shape[1], np.float32)

    def familiarity(self, word: str) -> float:
        """The rank of a word, infinite where it is not known. Phrases come after their rarest word."""
        parts = re.split("[ -]", word.lower())
        if len(parts) == 1:
            rank = self.rank.get(parts[0], np.inf)
            return rank if word.islower() or rank < RARE_NAME else np.inf
        ranks = [self.rank.get(part, np.inf) for part in parts]
        if len(parts) > 3 or max(ranks) > KNOWN_IN_PHRASE or not re.fullmatch(r"[\w' -]+", word):
            return np.inf
        return max(ranks) + PHRASE


def unit(vector: np.ndarray) -> np.ndarray:
    """The vector at length 1."""
    return vector / max(float(np.linalg.norm(vector)), 1e-9)


def used(synsets: dict[str, Synset]) -> Counter[str]:
    """In how many definitions each run of two or three words stands."""
    return Counter(
        phrase
        for synset in synsets.values()
        for n in (2, 3)
        for phrase in {" ".join(synset.gloss[i : i + n]) for i in range(len(synset.gloss) - n + 1)}
    )


def plain(word: str, synset: Synset, phrases: Counter[str]) -> bool:
    """Whether a word is a usual way to say what a synset means: no abbreviation, no longer form of another word."""
    if word == synset.words[0]:
        return True
    if " " not in word:
        return len(word) > 3 or word.isupper()
    return phrases[word.lower()] >= (3 if any(" " not in other for other in synset.words) else 1)


def senses(synsets: dict[str, Synset], vectors: Vectors) -> dict[str, list[str]]:
    """For each synset its words that people know, and know in this sense; the most familiar first."""
    near: dict[str, list[tuple[float, str, str]]] = defaultdict(list)
    phrases = used(synsets)
    for offset, synset in synsets.items():
        relatives = [synsets[other].words[0] for other in [*synset.above, *synset.below[:20]]]
        around = " ".join([*synset.words, *relatives]).lower().split()
        for word in synset.words:
            if np.isfinite(vectors.familiarity(word)) and plain(word, synset, phrases):
                parts = re.split("[ -]", word.lower())
                definition = vectors.mean([w for w in synset.gloss if w not in parts])
                company = vectors.mean([w for w in around if w not in parts])
                near[word.lower()].append((float(vectors.mean(parts) @ unit(definition + company)), offset, word))
    kept: dict[str, list[str]] = defaultdict(list)
    for found in near.values():
        best = max(found)
        for cosine, offset, word in sorted(found, reverse=True)[:MOST_SENSES]:
            share = LEAST_SHARE if word.islower() else LEAST_SHARE_NAME
            if cosine >= max(LEAST_SENSE, share * best[0]):
                kept[offset].append(best[2])  # one spelling, with a capital where that is the usual sense
    return {offset: sorted(words, key=vectors.familiarity) for offset, words in kept.items()}


def below(synsets: dict[str, Synset], offset: str, deep: bool) -> list[str]:
    """The synsets under one, each once: the children, or all descendants."""
    found = dict.fromkeys(synsets[offset].below)
    queue = list(found) if deep else []
    while queue:
        new = [other for other in synsets[queue.pop()].below if other not in found]
        found.update(dict.fromkeys(new))
        queue += new
    return list(found)


def concept(words: set[str], vectors: Vectors) -> list[str]:
    """The members that go with the rest, the most familiar first; none where they do not go together."""
    members = sorted(words, key=lambda word: (vectors.familiarity(word), word))[: 3 * MOST]
    if len(members) < FEWEST:
        return []
    table = np.stack([vectors.mean(re.split("[ -]", word.lower())) for word in members])
    for _ in range(2):
        rest = table.sum(0) - table
        cosines = (table * rest).sum(1) / np.linalg.norm(rest, axis=1).clip(1e-9)
        good = np.flatnonzero(cosines >= LEAST_MEMBER)[:MOST]
        if len(good) < FEWEST or cosines[good].mean() < LEAST_CONCEPT:
            return []
        members, table = [members[i] for i in good], table[good]
    return members


def groups(words: set[str], vectors: Vectors) -> list[set[str]]:
    """The words under a wide noun, in groups that are used alike: of beverages the wines, the hot ones, …"""
    if not GROUP < len(words) <= WIDEST:
        return []
    members = sorted(words)
    table = np.stack([vectors.mean(re.split("[ -]", word.lower())) for word in members])
    labels = AgglomerativeClustering(-(-2 * len(members) // GROUP), linkage="ward").fit_predict(table)
    return [{members[i] for i in np.flatnonzero(labels == label)} for label in np.unique(labels)]


def different(found: list[Concept]) -> list[Concept]:
    """Without those that are nearly the same as one before them: whole nouns first, the larger first, then groups."""
    found = sorted(found, key=lambda c: (c.group, c.under if c.group else -len(c.members), c.name, c.members))
    ids: dict[str, int] = {}
    rows = [[ids.setdefault(word, len(ids)) for word in c.members] for c in found]
    sizes, group = np.array([len(row) for row in rows]), np.array([c.group for c in found])
    flat = np.concatenate([np.array(row) for row in rows])
    table = sp.csr_array((np.ones(len(flat)), flat, np.concatenate([[0], sizes.cumsum()])))
    shared = sp.coo_array(table @ table.T)
    first, second = shared.row, shared.col
    jaccard = shared.data / (sizes[first] + sizes[second] - shared.data)
    near = (first < second) & (jaccard >= np.where(group[second], SAME_GROUP, SAME))
    kept = np.ones(len(rows), dtype=bool)
    for i, j in sorted(zip(first[near].tolist(), second[near].tolist(), strict=True)):
        if kept[i]:
            kept[j] = False
    return [c for c, good in zip(found, kept, strict=True) if good]


def concepts(synsets: dict[str, Synset], vectors: Vectors) -> list[Concept]:
    """All concepts."""
    known = senses(synsets, vectors)
    found = []
    for offset, synset in synsets.items():
        own = {word.lower() for word in synset.words}
        for deep in (False, True):
            words = {w for other in below(synsets, offset, deep) for w in known.get(other, [])[:MOST_SYNONYMS]}
            words = {word for word in words if word.lower() not in own and not (deep and " " in word)}
            if len(words) <= WIDE:
                found.append(Concept(synset.words[0], concept(words, vectors), len(words), False))
            for part in groups(words, vectors) if deep else []:
                found.append(Concept(synset.words[0], concept(part, vectors), len(words), True))
    return different([c for c in found if c.members])


def main() -> None:
    """Reads, derives, writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("wordnet", type=Path, help="data.noun.gz of WordNet 3.1")
    parser.add_argument("vectors", type=Path, help="a folder with words.txt and vectors_f16.npy")
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    vectors = Vectors(args.vectors)
    found = sorted(concepts(read_wordnet(args.wordnet), vectors))
    words = {word for c in found for word in c.members}
    lines = [sorted(words, key=lambda word: (vectors.familiarity(word), word)), *([c.name, *c.members] for c in found)]
    args.output.write_bytes(gzip.compress("".join("\t".join(line) + "\n" for line in lines).encode(), 9, mtime=0))
    print(f"{len(found)} concepts of {len(words)} words, {args.output.stat().st_size} bytes")  # noqa: T201


if __name__ == "__main__":
    main()
