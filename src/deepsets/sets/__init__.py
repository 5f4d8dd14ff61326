"""Ragged batches of sets: the data structure that all layers, models and estimators take and return."""

from .arrays import as_tensor, flatten_arrays
from .batch import Sets, collate
from .interop import group_anndata
from .selection import to_offsets
from .tables import Grouped, as_frame, group_codes, group_frame, group_rows, is_missing
from .validation import check_finite

__all__ = [
    "Grouped",
    "Sets",
    "as_frame",
    "as_tensor",
    "check_finite",
    "collate",
    "flatten_arrays",
    "group_anndata",
    "group_codes",
    "group_frame",
    "group_rows",
    "is_missing",
    "to_offsets",
]
