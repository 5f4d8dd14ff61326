"""The concepts that come with the library: lists of English nouns derived from WordNet 3.1."""

from __future__ import annotations

import functools
import gzip
import hashlib
import importlib.metadata
import os
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from ..base import BaseExpander
from .methods import METHODS, fit_expander


class Concepts(NamedTuple):
    """words: all members, the most frequent in English first. names: of the sets, several of which may share one."""

    words: list[str]
    names: list[str]
    sets: list[list[str]]


@functools.cache
def concept_sets() -> Concepts:
    """Sets of words that WordNet has under one noun, made by `scripts/wordnet_concepts.py`.

    >>> found = concept_sets()
    >>> found.sets[found.names.index("big cat")][:4]
    ['tiger', 'lion', 'jaguar', 'panther']

    WordNet's notice stands beside the file, in `WORDNET-LICENSE`.
    """
    first, *lines = gzip.decompress(_file()).decode().splitlines()
    rows = [line.split("\t") for line in lines]
    return Concepts(first.split("\t"), [row[0] for row in rows], [row[1:] for row in rows])


@functools.cache
def concept_expander(method: str = METHODS[0], verbose: bool = False) -> BaseExpander:
    """An expander that knows the `concept_sets`, with nothing to download.

    >>> [found.element for found in concept_expander().expand(["lion", "tiger", "leopard"], k=3)]
    ['cheetah', 'panther', 'lioness']

    "deep-sets" is trained at its first use, and kept as a model folder in the user's cache, by the version of the
    library and the hash of the file. Where the cache cannot be written, it is trained again in the next process.
    """
    if method != "deep-sets":
        return fit_expander(concept_sets().sets, method, concept_sets().words)
    from ...io import ModelFolderError, load, save

    key = hashlib.sha256(_file() + importlib.metadata.version("deepsets").encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deepsets" / f"concepts-{key}"
    try:
        return load(folder)
    except ModelFolderError:
        pass  # not there yet, or damaged
    expander = fit_expander(concept_sets().sets, method, concept_sets().words, verbose=verbose)
    try:
        save(expander, folder, overwrite=folder.exists())
    except OSError:
        pass
    return expander


def _file() -> bytes:
    return resources.files(__package__).joinpath("concepts.txt.gz").read_bytes()
