"""The Deep Sets expander of English words: trained on concepts, with word vectors as features."""

from __future__ import annotations

from importlib import resources

import safetensors.torch

from ..learned import SetExpander
from .data import WordData

FILE = "deep_sets.safetensors"


def new_expander(epochs: int = 4) -> SetExpander:
    """Return the unfitted expander.

    Parameters
    ----------
    epochs : int, default=4
        Passes over the concepts.

    Returns
    -------
    SetExpander

    """
    return SetExpander(
        loss="softmax", embedding=0, phi=(128,), rho=(256,), query=(2, 5), positives=5, negatives=512, epochs=epochs
    )


def load_deep_sets(data: WordData) -> SetExpander:
    """Return the trained expander.

    Parameters
    ----------
    data : WordData
        The words that it scores.

    Returns
    -------
    SetExpander

    """
    weights = safetensors.torch.load(resources.files(__package__).joinpath(FILE).read_bytes())
    expander = new_expander()
    expander.features_ = data.vectors
    tensors = {f"network_.{name}": tensor.float() for name, tensor in weights.items()}
    facts = {"vocabulary_": data.words, "n_features_in_": data.vectors.shape[1], "n_context_": 0, "n_embedding_": 0}
    return expander.set_state(tensors, facts)
