"""Ragged batches of sets: the one data structure that everything else takes and gives."""

from .ragged import Sets as Sets
