"""Expanders that know English nouns: concept sets from WordNet, shipped with the library, and three methods by name."""

from .methods import METHODS as METHODS
from .methods import fit_expander as fit_expander
from .wordnet import Concepts as Concepts
from .wordnet import concept_expander as concept_expander
from .wordnet import concept_sets as concept_sets
