"""Set expansion of English words, with data that comes with the library."""

from .data import Concepts, WordData, concept_sets, word_data
from .expander import WORD_METHODS, WordExpander, word_expander

__all__ = ["WORD_METHODS", "Concepts", "WordData", "WordExpander", "concept_sets", "word_data", "word_expander"]
