"""Ragged batches of sets: the data structure that all layers, models and estimators take and return."""

from .batch import Sets, collate
from .ragged import to_offsets

__all__ = ["Sets", "collate", "to_offsets"]
