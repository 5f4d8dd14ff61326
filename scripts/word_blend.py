"""Learn the weights of `deepsets.expand.words.WordExpander` from lists of things that belong together.

    python scripts/word_blend.py benchmarks/data/concept_lists.txt src/deepsets/expand/words/weights.json

From every list marked with * two, three, four and five random members are the query; logistic regression separates the
other members from other words among those that are preselected for the query. The lists without * are for measuring.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from deepsets.expand.vocabulary import Vocabulary
from deepsets.expand.words import FEATURES, PRESELECTED, WordEvidence, quick_scores, word_data

SIZES = (2, 3, 4, 5)


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
    rows, truth = [], []
    for members in read_lists(args.lists, tuning=True).values():
        ids = np.unique([i for member in members if (i := vocabulary.find(member)) is not None])
        for size in SIZES:
            order = rng.permutation(ids)
            query, wanted = np.sort(order[:size]), order[size:]
            features = evidence(query)
            quick = quick_scores(features)
            quick[data.function | np.isin(data.stems, data.stems[query])] = -np.inf
            chosen = np.argpartition(-quick, PRESELECTED)[:PRESELECTED]
            rows.append(features[chosen])
            truth.append(np.isin(data.stems[chosen], data.stems[wanted]))
    table, scale = np.concatenate(rows), np.concatenate(rows).std(0)
    model = LogisticRegression(max_iter=500).fit(table / scale, np.concatenate(truth))
    weights = {name: round(float(w), 5) for name, w in zip(FEATURES, model.coef_[0] / scale, strict=True)}
    args.output.write_text(json.dumps(weights, indent=1) + "\n")
    print(weights)  # noqa: T201


if __name__ == "__main__":
    main()
