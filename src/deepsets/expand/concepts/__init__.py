"""Expanders that know English nouns: concept sets from WordNet, shipped with the library, and three methods by name."""

from ._methods import METHODS as METHODS
from ._methods import fit_expander as fit_expander
from ._wordnet import Concepts as Concepts
from ._wordnet import concept_expander as concept_expander
from ._wordnet import concept_sets as concept_sets
