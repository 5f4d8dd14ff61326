"""Ragged batches of sets: the one data structure that everything else takes and gives."""

from ._sets import Sets as Sets
