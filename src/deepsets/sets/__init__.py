"""Ragged batches of sets: the data structure that all layers, models and estimators take and return."""

from .arrays import as_tensor, flatten_arrays
from .batch import Sets, collate
from .ragged import to_offsets
from .tables import group_codes, group_rows, is_missing
from .validation import check_finite

__all__ = [
    "Sets",
    "as_tensor",
    "check_finite",
    "collate",
    "flatten_arrays",
    "group_codes",
    "group_rows",
    "is_missing",
    "to_offsets",
]
