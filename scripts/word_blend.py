"""Learn the weights of `deepsets.expand.words.WordExpander` from lists of things that belong together.

    python scripts/word_blend.py benchmarks/data/concept_lists.txt src/deepsets/expand/words/weights.json

From every list marked with * two, three, four and five random members are the query; logistic regression separates the
other members from other words: the 200 most similar ones, and of those behind them the one at rank r with probability
200 / r (and a weight that makes up for it). The lists without * are for measuring.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from deepsets.expand.vocabulary import Vocabulary
from deepsets.expand.words import word_data
from deepsets.expand.words.evidence import FEATURES, WordEvidence

SIZES, NEGATIVES = (2, 3, 4, 5), 200


def read_lists(path: Path, tuning: bool) -> dict[str, list[str]]:
    """Lists by name, those for tuning or the others."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    pairs = [line.removeprefix("*").split(": ", 1) for line in lines if line.startswith("*") == tuning]
    return {name: [member.strip() for member in members.split(",")] for name, members in pairs}


def main() -> None:
    """Read, learn, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("lists", type=Path)
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    data = word_data()
    vocabulary, evidence = Vocabulary(data.words), WordEvidence(data)
    rng = np.random.default_rng(0)
    rows, truth, weight = [], [], []
    for members in read_lists(args.lists, tuning=True).values():
        ids = np.unique([i for member in members if (i := vocabulary.find(member)) is not None])
        for size in SIZES:
            order = rng.permutation(ids)
            query, wanted = np.sort(order[:size]), order[size:]
            features = evidence(query)
            quick = 8 * features[:, 0] + 0.3 * (features[:, 4] + features[:, 6])
            rank = np.empty(len(quick))
            rank[np.argsort(-quick)] = np.arange(1, len(quick) + 1)
            chance = np.minimum(1, NEGATIVES / rank)
            drawn = rng.random(len(chance)) < chance
            drawn[np.isin(data.stems, data.stems[ids]) | data.function] = False
            chosen = np.concatenate([wanted, np.flatnonzero(drawn)])
            rows.append(features[chosen])
            truth.append(np.arange(len(chosen)) < len(wanted))
            weight.append(np.where(truth[-1], 1, 1 / chance[chosen]))
    table, scale = np.concatenate(rows), np.concatenate(rows).std(0)
    model = LogisticRegression(max_iter=500).fit(table / scale, np.concatenate(truth), np.concatenate(weight))
    weights = {name: round(float(w), 5) for name, w in zip(FEATURES, model.coef_[0] / scale, strict=True)}
    args.output.write_text(json.dumps(weights, indent=1) + "\n")
    print(weights)  # noqa: T201


if __name__ == "__main__":
    main()
