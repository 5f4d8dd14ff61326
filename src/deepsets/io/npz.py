"""NumPy archives as tables: columns, or sets one after another with their offsets."""

from __future__ import annotations

import zipfile
from typing import Any

import numpy as np

OFFSETS = "offsets"


def read_npz(file: Any, pa: Any) -> Any:
    """Return the arrays of an archive as an Arrow table.

    Arrays of one length are columns. With an array ``offsets`` (B + 1,), arrays with as many entries as there are
    members become list columns. Arrays (N, D) become columns of fixed-size lists; the last axes of arrays with more
    axes are flattened. Pickled objects are refused.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            arrays = {name.removesuffix(".npy"): _read(archive, name) for name in archive.namelist()}
    except (ValueError, OSError, EOFError, KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        raise ValueError(f"it is not an NPZ archive of plain arrays: {error}") from None
    except (SyntaxError, TypeError, UnicodeError, OverflowError, zipfile.zlib.error) as error:  # type: ignore[attr-defined]
        raise ValueError(f"an array in it is damaged: {error}") from None
    offsets = arrays.pop(OFFSETS, None)
    columns = {name: _column(array, name, pa) for name, array in arrays.items() if array.ndim}
    if offsets is not None:
        sets, members = len(offsets) - 1, _check_offsets(offsets)
        for name, column in columns.items():
            if len(column) == members and (len(column) != sets or pa.types.is_fixed_size_list(column.type)):
                columns[name] = pa.LargeListArray.from_arrays(pa.array(offsets.astype(np.int64)), column)
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"the arrays of a table need one length, found {found}. Sets one after another need `offsets`")
    if offsets is not None and lengths and next(iter(lengths.values())) != len(offsets) - 1:
        raise ValueError(
            f"`offsets` end at {int(offsets[-1])} members of {len(offsets) - 1} sets, but the arrays have "
            f"{next(iter(lengths.values()))} entries"
        )
    return pa.table(columns)


def _read(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """One array, after a look at its header: what it claims must fit into what the archive holds."""
    entry = archive.getinfo(name)
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(file)
        if dtype.hasobject:
            raise ValueError(f"{name} holds Python objects, which are never read")
        size = dtype.itemsize * int(np.prod([int(n) for n in shape], dtype=object))
        if min(shape, default=0) < 0 or size > entry.file_size:
            raise ValueError(f"{name} claims {size:,} bytes, but the archive holds {entry.file_size:,}")
    with archive.open(entry) as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
    if array.dtype.kind not in "biufUSmM":
        raise ValueError(f"{name} holds {array.dtype}: numbers, text or dates are supported")
    return array


def _check_offsets(offsets: np.ndarray) -> int:
    """Offsets begin with 0 and never fall; the number of members they describe."""
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) == 0:
        raise ValueError(f"`offsets` must be B + 1 integers, found {offsets.dtype} of shape {offsets.shape}")
    values = offsets.astype(np.int64)
    if values[0] != 0:
        raise ValueError(f"`offsets` must begin with 0, found {int(offsets[0])}")
    falls = np.flatnonzero(np.diff(values) < 0)
    if len(falls):
        b = int(falls[0])
        raise ValueError(
            f"`offsets` must not fall: set {b} would begin at {int(offsets[b])} and end at {int(offsets[b + 1])}"
        )
    return int(values[-1])


def _column(array: np.ndarray, name: str, pa: Any) -> Any:
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.ndim == 1:
        return pa.array(np.ascontiguousarray(array))
    width = int(np.prod(array.shape[1:]))
    if width == 0:
        raise ValueError(f"{name} has shape {array.shape}: a member needs at least one number")
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(array).reshape(-1)), width)
