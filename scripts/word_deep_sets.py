"""Train the Deep Sets expander of `deepsets.expand.words` on the concept sets, with the word vectors as features.

python scripts/word_deep_sets.py src/deepsets/expand/words/deep_sets.safetensors
"""

from __future__ import annotations

import sys

import safetensors.torch
import torch

from deepsets import Sets
from deepsets.expand.words import new_deep_sets, word_data


def main() -> None:
    """Train, and write the weights as half-precision numbers."""
    data = word_data()
    offsets = torch.from_numpy(data.members.indptr).long()
    sets = Sets(torch.from_numpy(data.members.indices).long(), offsets)
    expander = new_deep_sets().fit(sets, items=(data.words, data.vectors))
    weights = {name: tensor.half().contiguous() for name, tensor in expander.network_.state_dict().items()}
    safetensors.torch.save_file(weights, sys.argv[1])
    print(expander.history_[-1])  # noqa: T201


if __name__ == "__main__":
    main()
