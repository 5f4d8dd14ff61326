"""Functions of Arrow tables that an engine moves tables between: encode, merge, remove, decode."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..io import load
from ..io.predictions import output_columns, prediction_columns
from ..io.reader import Source
from ..io.storage import arrow, local_folder
from ..io.table_sets import TableSets, to_sets
from ..nn import DeepSet
from ..sets import Sets
from .states import MEMBERS, join, merge_states, remove_states, split

BATCH = 8_000  # members that pass through phi at a time: 8 MB for 128 numbers in float64, which stays near the cache
SMALL = 100  # members of a set up to which a sum in float32 has as many digits as one in float64
Function = Callable[..., Any]


def encode(model: Any, *, by: str, features: Sequence[str] | None = None, z: Sequence[str] = ()) -> Function:
    """Return a function from a table of rows to a table of partial states, one per set seen.

    phi runs in the precision of the model; its outputs are pooled and merged in float64, so that neither the order of
    the rows nor the cut into parts is visible in a prediction.

    Parameters
    ----------
    model : str, Path, SetClassifier, SetRegressor or DeepSet
        A fitted model, or the path or URI of a model folder, which is then loaded once per process.
    by : str
        Column that names the set of each row.
    features, z : sequence of str, optional
        Columns of the members and of the set. By default those of the fit; for a `DeepSet` all other columns.

    Returns
    -------
    callable
        From `pyarrow.Table` to `pyarrow.Table`; it can be pickled.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from deepsets import nn
    >>> model = nn.DeepSet(nn.mlp(1, 4), nn.mlp(4, 1), pool="mean")
    >>> rows = pa.table({"shop": ["a", "b", "a"], "price": [1.0, 2.0, 4.0]})
    >>> states = encode(model, by="shop")(rows)
    >>> states.column_names, states["members"].to_pylist()
    (['shop', 'members', 'state.sum', 'state.count'], [2, 1])
    >>> both = merge(model)(pa.concat_tables([states, states]))
    >>> both["members"].to_pylist(), decode(model)(both).column_names
    ([4, 2], ['shop', 'prediction'])
    """
    return functools.partial(_encode, model, by, features, z)


def merge(model: Any) -> Function:
    """Return a function that merges a table of states to one state per set, sorted by name.

    It is associative, and commutative up to rounding in float64: an engine may merge in any grouping and order.

    Parameters
    ----------
    model : str, Path, SetClassifier, SetRegressor or DeepSet
        The model of :func:`encode`: its pooling defines what merging is.
    """
    return functools.partial(_on_states, merge_states, model)


def remove(model: Any) -> Function:
    """Return a function of two tables of states that removes the members of the second from the sets of the first.

    Given one table only, it removes its rows with negative ``members`` from the others.

    Parameters
    ----------
    model : str, Path, SetClassifier, SetRegressor or DeepSet
        The model of :func:`encode`. Its pooling must be a sum underneath (sum, mean, sqrt, std).
    """
    return functools.partial(_on_states, remove_states, model)


def decode(model: Any) -> Function:
    """Return a function from a table of states to a table of predictions.

    Parameters
    ----------
    model : str, Path, SetClassifier, SetRegressor or DeepSet
        The model of :func:`encode`.
    """
    return functools.partial(_decode, model)


def predict_whole(model: Any, by: str, features: Sequence[str] | None = None, z: Sequence[str] = ()) -> Function:
    """Return a function from a table with all rows of its sets to predictions, without states."""
    return functools.partial(_predict, model, by, features, z)


def load_model(model: Any) -> Any:
    """Return a model, or load the one at a path or URI, once per process."""
    return _load(str(model)) if isinstance(model, str | Path) else model


def set_model(model: Any) -> Any:
    """Return a model of sets, in the mode for predictions; another one is an error."""
    found = load_model(model)
    if isinstance(found, DeepSet):
        return found.eval()
    if not hasattr(found, "predict"):
        raise ValueError(f"a {type(found).__name__} does not predict for sets: wanted an estimator or a DeepSet.")
    return found


def is_mergeable(model: Any) -> bool:
    """Return whether a model has states, so that sets may be read in pieces."""
    return model.mergeable if isinstance(model, DeepSet) else getattr(model, "mergeable_", False)


@functools.lru_cache(maxsize=8)
def _load(uri: str) -> Any:
    return load(local_folder(uri))


def _sets(net: Any, by: str, features: Sequence[str] | None, z: Sequence[str], table: Any) -> tuple[Source, TableSets]:
    source = Source(net, [table], by, features=features, z=z)
    return source, source.check(to_sets(table, source.shape, source.columns, dtype=source.dtype))


@torch.no_grad()
def _encode(model: Any, by: str, features: Sequence[str] | None, z: Sequence[str], table: Any) -> Any:
    net = set_model(model)
    if not hasattr(net, "encode"):
        raise ValueError(f"a {type(net).__name__} looks at all members of a set at once: it has no states.")
    return _states(net, *_sets(net, by, features, z, table))


def _states(net: Any, source: Source, sets: TableSets) -> Any:
    few = _divided(sets)
    if isinstance(net, DeepSet):
        states = [net.encode(*_tensors(piece), dtype=torch.float64).parts for piece in _pieces(few)]
    else:
        states = [net.encode(piece.X, z=piece.z).parts for piece in _pieces(few)]
    known = {source.naming: few.ids, MEMBERS: few.sizes.astype(np.int64)}
    if few.z is not None:
        columns = few.z.T if isinstance(few.z, np.ndarray) else few.z.columns
        known |= dict(zip(source.columns.z, columns, strict=True))
    found = join(known, {name: torch.cat([each[name] for each in states]).double() for name in states[0]})
    return found if few is sets else merge_states(net, found)


def _on_states(function: Function, model: Any, *tables: Any) -> Any:
    return function(set_model(model), *tables)


@torch.no_grad()
def _decode(model: Any, table: Any) -> Any:
    net = set_model(model)
    known, parts = split(table)
    (name, ids), _, *context = known.items()
    if isinstance(net, DeepSet):
        # In float64, as the states: poolings with layers of their own would lose digits in float32.
        exact, kind = copy.deepcopy(net).double(), next((p.dtype for p in net.parameters()), torch.float32)
        z = torch.from_numpy(np.stack([column for _, column in context], axis=1)) if context else None
        columns = _columns(net, exact.decode(exact.state(parts), z).to(kind))
    else:
        columns = output_columns(net, net.decode(net.state(parts)))
    return arrow().table({name: ids, **columns})


@torch.no_grad()
def _predict(model: Any, by: str, features: Sequence[str] | None, z: Sequence[str], table: Any) -> Any:
    net = set_model(model)
    source, sets = _sets(net, by, features, z, table)
    out = []
    for piece in _pieces(sets):
        if is_mergeable(net) and piece.sizes.max() > SMALL:
            out.append(_decode(net, _states(net, source, piece)))
        elif isinstance(net, DeepSet):
            out.append(arrow().table({source.naming: piece.ids, **_columns(net, net(*_tensors(piece)))}))
        else:
            out.append(arrow().table(prediction_columns(net, piece, source.naming)))
    return arrow().concat_tables(out)


def _columns(net: DeepSet, values: Tensor) -> dict[str, Any]:
    return output_columns(net, (values[:, 0] if values.shape[1:] == (1,) else values).numpy())


def _tensors(sets: TableSets) -> tuple[Any, Tensor | None]:
    return sets.X, None if sets.z is None else torch.from_numpy(sets.z).to(sets.X.dtype)


def _divided(sets: TableSets) -> TableSets:
    """Sets of at most `BATCH` members: a larger one becomes several of the same name."""
    if not isinstance(sets.X, Sets) or sets.sizes.max(initial=0) <= BATCH:
        return sets
    counts = np.maximum(-(-sets.sizes // BATCH), 1)
    sizes, rows = np.full(counts.sum(), BATCH), np.repeat(np.arange(len(sets)), counts)
    sizes[np.cumsum(counts) - 1] = sets.sizes - BATCH * (counts - 1)
    X = Sets.unchecked(sets.X.values, torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)])))
    z = None if sets.z is None else sets.z[rows] if isinstance(sets.z, np.ndarray) else sets.z.take(rows)
    return TableSets(X, sizes, sets.ids.take(arrow().array(rows)), z, [], True)


def _pieces(sets: TableSets) -> Iterator[TableSets]:
    """Whole sets with about `BATCH` members together."""
    share = (np.cumsum(sets.sizes) - 1).clip(min=0) // BATCH
    cuts = [0, *(np.flatnonzero(np.diff(share)) + 1).tolist(), len(sets)]
    for start, stop in pairwise(cuts):
        which, X = slice(start, stop), sets.X
        if isinstance(X, Sets):  # without a copy
            offsets = X.offsets[start : stop + 1]
            X = Sets.unchecked(X.values[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0])
        else:
            X = X[which]
        z = None if sets.z is None else sets.z[which]
        yield TableSets(X, sets.sizes[which], sets.ids[which], z, [], True)
