"""Input of expanders: sets, items and features as ids and matrices."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from ..sets import Sets
from .vocabulary import UnknownElement, Vocabulary, plain_element


def is_rows(value: Any) -> bool:
    """Tell a matrix of features from a list of elements."""
    return getattr(value, "ndim", 0) == 2


def as_rows(value: Any, where: str) -> np.ndarray | sp.csr_array:
    """Check features: a matrix of finite numbers, dense or CSR."""
    if sp.issparse(value):
        rows, numbers = sp.csr_array(value), value.data
    else:
        rows = numbers = np.asarray(value)
        if rows.dtype.kind not in "biuf":
            raise ValueError(f"{where}: features must be numbers, found {rows.dtype}.")
        if rows.dtype.kind != "f":
            rows = numbers = rows.astype(np.float32)
    if rows.ndim != 2:
        raise ValueError(f"{where}: features must have the shape (elements, features), found {rows.shape}.")
    if not np.isfinite(numbers).all():
        row = "" if sp.issparse(value) else f" in row {int(np.argwhere(~np.isfinite(numbers))[0][0])}"
        raise ValueError(f"{where}: features must be finite, found NaN or inf{row}.")
    return rows


def as_dense(rows: Any) -> np.ndarray:
    """Return features as a dense matrix of float32, or of float64 if they are."""
    dense = rows.toarray() if sp.issparse(rows) else np.asarray(rows)
    return dense.astype(np.float64 if dense.dtype == np.float64 else np.float32, copy=False)


def read_items(items: Any) -> tuple[list[Any] | None, np.ndarray | sp.csr_array | None]:
    """Split items into names and features, each None if not given."""
    if items is None:
        return None, None
    if is_rows(items):
        return list(range(items.shape[0])), as_rows(items, "items")
    if isinstance(items, Mapping):
        if not items:
            raise ValueError("items is an empty dict.")
        widths = {name: np.shape(row) for name, row in items.items()}
        first = next(iter(widths))
        for name, shape in widths.items():
            if shape != widths[first] or len(shape) != 1:
                raise ValueError(
                    f"items: {name!r} has features of shape {shape}, but {first!r} of shape {widths[first]}: "
                    "wanted one row of the same width for each."
                )
        return list(items), as_rows(np.stack([np.asarray(row) for row in items.values()]), "items")
    if isinstance(items, tuple) and len(items) == 2 and is_rows(items[1]):
        names, matrix = list(items[0]), as_rows(items[1], "items")
        if len(names) != matrix.shape[0]:
            raise ValueError(f"items: found {len(names)} names for a matrix of {matrix.shape[0]} rows.")
        return names, matrix
    return list(items), None


def read_sets(sets: Iterable[Iterable[Any]] | Sets, known: list[Any], fixed: bool) -> tuple[Sets, list[Any]]:
    """Read sets as ids, each element once per set, and the vocabulary: `known` and, unless `fixed`, new elements."""
    if isinstance(sets, Sets):
        return _id_sets(sets, known)
    ids: dict[Any, int] = {name: i for i, name in enumerate(known)}
    if len(ids) < len(known):
        seen: set[Any] = set()
        twice = next(name for name in known if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the vocabulary holds {twice!r} twice.")
    flat: list[int] = []
    offsets = [0]
    for b, members in enumerate(sets):
        if isinstance(members, str) or not isinstance(members, Iterable):
            raise ValueError(f"set {b} is {members!r}; wanted a list of elements.")
        plain = [plain_element(m) for m in members]
        for m in plain:
            if not isinstance(m, Hashable):
                raise ValueError(
                    f"set {b} holds a {type(m).__name__}, which is not hashable. For elements with features give "
                    "`items` with the features, and sets of their names."
                )
            if m not in ids:
                if fixed:
                    hint = UnknownElement(m, Vocabulary(known).suggest(m))
                    raise ValueError(f"set {b} holds an element that is not among the {len(ids)} items: {hint}.")
                ids[m] = len(ids)
        flat += dict.fromkeys(ids[m] for m in plain)
        offsets.append(len(flat))
    return Sets(torch.tensor(flat, dtype=torch.long), torch.tensor(offsets)), list(ids)


def _id_sets(sets: Sets, known: list[Any]) -> tuple[Sets, list[Any]]:
    sets = sets.materialize()
    values = sets.values
    if values.ndim != 1 or values.is_floating_point():
        raise ValueError(
            f"sets of ids hold one integer per element, found {sets!r}. For elements with features give `items` with "
            "the features, and sets of their ids."
        )
    names = known or list(range(int(values.max()) + 1 if len(values) else 0))
    wrong = torch.nonzero((values < 0) | (values >= len(names))).flatten()
    if len(wrong):
        b = int(sets.set_ids[wrong[0]])
        raise ValueError(f"set {b} holds the id {int(values[wrong[0]])}; wanted 0 to {len(names) - 1}.")
    code = (sets.set_ids * max(len(names), 1) + values).numpy()
    first = np.sort(np.unique(code, return_index=True)[1])
    sizes = np.bincount(sets.set_ids.numpy()[first], minlength=len(sets))
    return Sets(values[first].long(), torch.from_numpy(np.concatenate([[0], sizes.cumsum()]))), names


def read_z(z: Any, count: int, where: str, width: int | None = None) -> np.ndarray:
    """Check z: (count, Z) finite float32; a single vector is the row of a single set."""
    rows = np.asarray(z, dtype=np.float32)
    rows = rows[None] if rows.ndim == 1 and count == 1 else rows
    if rows.ndim != 2 or len(rows) != count or (width is not None and rows.shape[1] != width):
        wanted = f"({count}, {'Z' if width is None else width})"
        raise ValueError(f"{where}: z must have a row for each set, shape {wanted}; found {np.shape(z)}.")
    if not np.isfinite(rows).all():
        raise ValueError(f"{where}: z must be finite, found NaN or inf.")
    return rows
