"""Word vectors for `deepsets.expand.words`, from GloVe: 100 numbers of 4 bits per word.

    python scripts/word_vectors.py glove/ data.noun.gz src/deepsets/expand/words/

Reads `words.txt` (the most frequent first) and `vectors_f16.npy` of GloVe (PDDL), and the nouns of WordNet 3.1. Vectors
are scaled to length 1 and rotated to their principal axes; each coordinate, in units of its standard deviation, is
rounded to one of 16 levels that minimise the squared error (Lloyd's algorithm). Phrases are nouns of WordNet whose
words all have a vector; their vectors are computed when the file is read. Writes `vectors.npz`, `words.txt.gz` and
`index.npz`, which holds the concepts of `concepts.txt.gz` (see `wordnet_concepts.py`) as numbers of words.
"""

from __future__ import annotations

import argparse
import gzip
import re
from pathlib import Path

import numpy as np

from deepsets.expand.vocabulary import fold
from deepsets.expand.words import concept_sets

RARE_IN_PHRASE = 40_000  # words of a phrase are more frequent than this
LEVELS = 16


# Words that are no answer, whatever the query.
FUNCTION_WORDS = (
    "a about above across after again against all almost alone along already also although always am among an and "
    "another any anybody anyone anything anyway are aren around as at away back be became because become been before "
    "behind being below beside between beyond both but by can cannot could couldn did didn do does doesn doing don "
    "done down during each either else enough especially etc even ever every everybody everyone everything except few "
    "for from further get gets getting give given go goes going gone got had hadn has hasn have haven having he her "
    "here hers herself him himself his how however i if in indeed instead into is isn it its itself just kind know "
    "last later least less let like likely ll many may maybe me mean might mine more moreover most mostly much must my "
    "myself nearly need neither never next no nobody none nor not nothing now of off often on once one only onto or "
    "other others otherwise our ours out over own particularly per perhaps quite rather re really s said same say says "
    "see seem seemed seems several she should shouldn simply since so some somebody someone something sometimes soon "
    "still such t than that the their theirs them themselves then there therefore these they thing things this those "
    "though through thus to together too toward towards under until up upon us use used using usually ve very was wasn "
    "way we well went were weren what whatever when where whether which while who whoever whole whom whose why will "
    "with within without won would wouldn yet you your yours yourself yourselves"
).split()


def read_words(folder: Path) -> tuple[list[str], np.ndarray]:
    """Words with a letter, and their vectors."""
    words = folder.joinpath("words.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
    table = np.load(folder / "vectors_f16.npy").astype(np.float32)
    kept = [i for i, word in enumerate(words) if re.search("[a-z]", word)]
    return [words[i] for i in kept], table[kept]


def read_phrases(path: Path, words: list[str]) -> list[str]:
    """Noun phrases of two or three known words, as WordNet spells them, the more familiar first."""
    rank = {word: i for i, word in enumerate(words)}
    found: dict[str, tuple[int, str]] = {}
    with gzip.open(path, "rt", encoding="ascii") as file:
        for line in file:
            fields = line.split(" | ")[0].split(" ")
            if line.startswith(" "):  # the notice
                continue
            for i in range(int(fields[3], 16)):
                phrase = fields[4 + 2 * i].replace("_", " ")
                parts = phrase.lower().split(" ")
                ranks = [rank.get(part, RARE_IN_PHRASE) for part in parts]
                if 2 <= len(parts) <= 3 and max(ranks) < RARE_IN_PHRASE and phrase.lower() not in rank:
                    found.setdefault(phrase.lower(), (max(ranks), phrase))
    return [phrase for _, phrase in sorted(found.values())]


def lloyd(values: np.ndarray, count: int, rounds: int = 100) -> np.ndarray:
    """Levels that minimise the squared error of rounding."""
    levels = np.linspace(*np.quantile(values, [0.001, 0.999]), count)
    for _ in range(rounds):
        nearest = np.searchsorted((levels[1:] + levels[:-1]) / 2, values)
        levels = np.bincount(nearest, values, count) / np.maximum(np.bincount(nearest, minlength=count), 1)
    return levels


def quantise(table: np.ndarray) -> dict[str, np.ndarray]:
    """Unit vectors as 4-bit codes: `mean + levels[code] * scale`, in their principal axes."""
    table = table / np.linalg.norm(table, axis=1, keepdims=True).clip(1e-9)
    mean = table.mean(0)
    centred = table - mean
    axes = np.linalg.eigh(centred.T.astype(np.float64) @ centred)[1][:, ::-1]
    turned = centred @ axes
    scale = turned.std(0)
    levels = lloyd((turned[:: max(1, len(turned) // 5000)] / scale).ravel(), LEVELS)
    codes = np.searchsorted((levels[1:] + levels[:-1]) / 2, turned / scale).astype(np.uint8)
    packed = (codes[:, 0::2] << 4) | codes[:, 1::2]
    numbers = {"levels": levels, "mean": mean @ axes, "scale": scale}
    return {"codes": packed, **{name: value.astype(np.float32) for name, value in numbers.items()}}


def index(plain: list[str], phrases: list[str]) -> tuple[list[str], dict[str, np.ndarray]]:
    """All words in their usual spelling; parts of phrases, stems, concepts and function words as numbers of words."""
    concepts = concept_sets()
    spelled = {fold(word): word for word in reversed(concepts.words)}  # with a capital where that is usual
    words = [spelled.get(word, word) for word in plain]
    place = {word: i for i, word in enumerate(plain)}
    known = {fold(word) for word in plain}
    extra = {fold(p): spelled.get(fold(p), p) for p in [*concepts.words, *phrases] if fold(p) not in known}
    parts = [[place[part] for part in re.split("[ -]", p.lower()) if part in place] for p in extra.values()]
    words += [p for p, found in zip(extra.values(), parts, strict=True) if found]
    parts = [found for found in parts if found]
    ids: dict[str, int] = {}
    for i, word in enumerate(words):
        ids.setdefault(fold(word), i)
    rows = [[ids[fold(word)] for word in members if fold(word) in ids] for members in concepts.sets]
    numbers = {
        "parts": [i for found in parts for i in found],
        "part_offsets": np.cumsum([0, *map(len, parts)]),
        "members": [i for row in rows for i in row],
        "member_offsets": np.cumsum([0, *map(len, rows)]),
        "stems": stems(words),
        "function": [place[word] for word in FUNCTION_WORDS if word in place],
    }
    return words, {name: np.array(value, dtype=np.int32) for name, value in numbers.items()}


def stems(words: list[str]) -> np.ndarray:
    """Number the words, plurals and possessives like the word they are derived from, if that is known."""
    ids: dict[str, int] = {}
    for i, word in enumerate(words):
        ids.setdefault(word.casefold(), i)
    return np.array([next((ids[s] for s in bases(word.casefold()) if s in ids), i) for i, word in enumerate(words)])


def bases(word: str) -> list[str]:
    """Words that a word may be the plural or possessive of."""
    if word.endswith("'s"):
        return [word[:-2]]
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return []
    if word.endswith("ies"):
        return [word[:-3] + "y", word[:-1]]
    if word.endswith("ves"):
        return [word[:-1], word[:-3] + "f", word[:-3] + "fe"]
    if word.endswith(("ses", "xes", "zes", "ches", "shes", "oes")):
        return [word[:-1], word[:-2]]
    return [word[:-1]]


def main() -> None:
    """Read, quantise, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("glove", type=Path, help="folder with words.txt and vectors_f16.npy")
    parser.add_argument("wordnet", type=Path, help="data.noun.gz of WordNet 3.1")
    parser.add_argument("output", type=Path, help="folder to write to")
    args = parser.parse_args()
    words, table = read_words(args.glove)
    phrases = read_phrases(args.wordnet, words)
    every, numbers = index(words, phrases)
    text = "\n".join(every) + "\n"
    args.output.joinpath("words.txt.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    np.savez_compressed(args.output / "index.npz", **numbers)
    np.savez_compressed(args.output / "vectors.npz", **quantise(table))
    sizes = {file: args.output.joinpath(file).stat().st_size for file in ("words.txt.gz", "vectors.npz", "index.npz")}
    print(f"{len(words)} words, {len(phrases)} phrases: {sizes}")  # noqa: T201


if __name__ == "__main__":
    main()
