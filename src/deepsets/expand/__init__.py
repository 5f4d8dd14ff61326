"""Set expansion: from a few examples to more like them (Deep Sets, section 4.2 and appendices D, E)."""

from .base import BaseExpander
from .bayesian import BayesianSets
from .blended import BlendedExpander
from .cooccurrence import EASE, ItemItem, Popularity, RandomExpander
from .expander import Expander
from .learned import SetExpander
from .metrics import Candidate, Explanation, evaluate, odd_member, top_k
from .vectors import NearestVectors, set_vectors
from .vocabulary import ParsedQuery, UnknownElement, UnknownElementWarning, Vocabulary

__all__ = [
    "EASE",
    "BaseExpander",
    "BayesianSets",
    "BlendedExpander",
    "Candidate",
    "Expander",
    "Explanation",
    "ItemItem",
    "NearestVectors",
    "ParsedQuery",
    "Popularity",
    "RandomExpander",
    "SetExpander",
    "UnknownElement",
    "UnknownElementWarning",
    "Vocabulary",
    "evaluate",
    "odd_member",
    "set_vectors",
    "top_k",
]
