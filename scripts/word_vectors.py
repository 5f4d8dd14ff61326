"""Word vectors for `deepsets.expand.words`, from GloVe: 100 numbers of 4 bits per word.

    python scripts/word_vectors.py glove/ data.noun.gz src/deepsets/expand/words/

Reads `words.txt` (the most frequent first) and `vectors_f16.npy` of GloVe (PDDL), and the nouns of WordNet 3.1. Vectors
are scaled to length 1 and rotated to their principal axes; each coordinate, in units of its standard deviation, is
rounded to one of 16 levels that minimise the squared error (Lloyd's algorithm). Phrases are nouns of WordNet whose
words all have a vector; their vectors are computed when the file is read. Writes `vectors.npz` and `words.txt.gz`.
"""

from __future__ import annotations

import argparse
import gzip
import re
from pathlib import Path

import numpy as np

RARE_IN_PHRASE = 40_000  # words of a phrase are more frequent than this
LEVELS = 16


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


def main() -> None:
    """Read, quantise, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("glove", type=Path, help="folder with words.txt and vectors_f16.npy")
    parser.add_argument("wordnet", type=Path, help="data.noun.gz of WordNet 3.1")
    parser.add_argument("output", type=Path, help="folder to write to")
    args = parser.parse_args()
    words, table = read_words(args.glove)
    phrases = read_phrases(args.wordnet, words)
    text = "\n".join(words) + "\n\n" + "\n".join(phrases) + "\n"
    args.output.joinpath("words.txt.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    np.savez_compressed(args.output / "vectors.npz", **quantise(table))
    sizes = {file: args.output.joinpath(file).stat().st_size for file in ("words.txt.gz", "vectors.npz")}
    print(f"{len(words)} words, {len(phrases)} phrases: {sizes}")  # noqa: T201


if __name__ == "__main__":
    main()
